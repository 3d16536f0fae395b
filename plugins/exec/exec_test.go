package exec

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/plugins/exec/group/grouptest"
	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

func TestConformance(t *testing.T) {
	sdktest.Conformance(t, Plugin(), sdktest.Options{Config: map[string]any{"command": []string{"true"}}})
}

// A command that takes too long ends with an error in words, with its last line.
func TestTimeout(t *testing.T) {
	r := host(t, shell("echo half-way >&2; while :; do read -r _ || sleep 1; done")).Run(sdktest.Task{Key: "k",
		Timeout: time.Second})
	if want := "timed out after 1s (timeout of kind exec): half-way"; r.Outcome != "failed" || r.Code != "timeout" ||
		r.Error != want || r.Final {
		t.Errorf("got %+v, want %q", r, want)
	}
}

func TestEnds(t *testing.T) {
	more := []any{"done", []int{0, 3}, "permanent", []int{65}, "snooze", []int{9}, "snooze_for", "90s"}
	for _, tt := range []struct {
		script        string
		settings      []any
		outcome, code string
		final         bool
		delay         time.Duration
		output, err   string
	}{
		{"exit 0", nil, "done", "", false, 0, "", ""},
		{"echo hello", nil, "done", "", false, 0, `"hello"`, ""},
		{"echo one; echo; echo ' two '; echo", nil, "done", "", false, 0, `"two"`, ""},
		{`printf '{"a":\n 1.50}\n'`, nil, "done", "", false, 0, `{"a":1.50}`, ""},
		{`echo working; echo '{"a":1}'`, nil, "done", "", false, 0, `{"a":1}`, ""},
		{`printf '"no \377 text"'`, nil, "done", "", false, 0, `"no � text"`, ""},
		{`printf 'no \377 text'`, nil, "done", "", false, 0, `"no � text"`, ""},
		{`echo '{"id":1,"code":"bad_key","error":"no","final":true}'`, nil, "failed", "answer", true, 0, "",
			"its last line is an answer of a worker that stays: --with stay=true"},
		{`echo '{"id":1}'`, nil, "done", "", false, 0, `{"id":1}`, ""},
		{`echo '{"id":1,"output":2,"size":3}'`, nil, "done", "", false, 0, `{"id":1,"output":2,"size":3}`, ""},
		{"echo half; echo broken >&2; exit 1", nil, "failed", "exit_1", false, 0, `"half"`, "exited with 1: broken"},
		{"exit 75", nil, "failed", "exit_75", false, 0, "", "exited with 75"},
		{"echo no input >&2; exit 66", nil, "failed", "exit_66", true, 0, "", "exited with 66: no input"},
		{"exit 3", more, "done", "", false, 0, "", ""},
		{"exit 65", more, "failed", "exit_65", true, 0, "", "exited with 65"},
		{"exit 66", more, "failed", "exit_66", false, 0, "", "exited with 66"},
		{"echo later >&2; exit 9", more, "snoozed", "", false, 90 * time.Second, "", "exited with 9: later"},
		{"kill -s KILL $$", nil, "failed", "signal_9", false, 0, "", "ended by signal 9 (killed)"},
		{"kill -s TERM $$", nil, "failed", "signal_15", false, 0, "", "ended by signal 15 (terminated)"},
	} {
		t.Run(tt.script, func(t *testing.T) {
			t.Parallel()
			r := one(t, tt.script, tt.settings...)
			got := []any{r.Outcome, r.Code, r.Final, r.Delay, string(r.Output), r.Error}
			if diff := cmp.Diff([]any{tt.outcome, tt.code, tt.final, tt.delay, tt.output, tt.err}, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestWhatTheCommandGets(t *testing.T) {
	t.Setenv("LEDGERD_TEST_PASSWORD", "hunter22")
	h := host(t, shell(`cat; pwd >&2; ls -A "$TMPDIR" >&2; : > "$TMPDIR/file"; env | sort >&2`), "dir", "/", "env",
		map[string]string{"MODEL": "small one"})
	r := h.Run(sdktest.Task{Key: "k", Attempt: 3, Payload: map[string]any{"n": json.Number("12345678901234567890"),
		"s": "é"}})
	want := `{"id":1,"kind":"exec","scope":"","key":"k","attempt":3,"idempotency_key":"exec//k/1","payload":{"n":12345678901234567890,"s":"é"}}`
	if string(r.Output) != want {
		t.Errorf("on stdin %s, want %s", r.Output, want)
	}
	var names []string
	var tmp string
	for _, line := range r.Log[1:] {
		_, set, _ := strings.Cut(line, "msg=")
		name, value, _ := strings.Cut(strings.Trim(set, `"`), "=")
		if names = append(names, name); name == "TMPDIR" {
			tmp = value
		}
		for name, want := range map[string]string{"MODEL": "small one", "LEDGERD_ITEM": "1", "LEDGERD_ATTEMPT": "3",
			"LEDGERD_KEY": "k", "LEDGERD_IDEMPOTENCY_KEY": "exec//k/1"} {
			if strings.HasPrefix(set, `"`+name+"=") && value != want {
				t.Errorf("%s, want %q", set, want)
			}
		}
	}
	if !strings.HasSuffix(r.Log[0], "msg=/") {
		t.Errorf("works in %s, want /", r.Log[0])
	}
	allowed := []string{"HOME", "LANG", "LEDGERD_ATTEMPT", "LEDGERD_IDEMPOTENCY_KEY", "LEDGERD_ITEM", "LEDGERD_KEY",
		"LEDGERD_KIND", "LEDGERD_SCOPE", "MODEL", "PATH", "PWD", "TMPDIR", "TZ"}
	for _, name := range names {
		if !slices.Contains(allowed, name) && name != "_" && name != "OLDPWD" && name != "SHLVL" {
			t.Errorf("the environment has %s", name)
		}
	}
	if _, err := os.Stat(tmp); tmp == "" || !os.IsNotExist(err) {
		t.Errorf("the folder %q is there after the attempt (%v)", tmp, err)
	}
}

// A program that is started for a traced item gets its trace context; one of the config does not hide it.
func TestTraceContextOfTheCommand(t *testing.T) {
	t.Parallel()
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	h := host(t, shell(`echo "$TRACEPARENT $TRACESTATE"`), "env", map[string]string{"TRACEPARENT": "of the config"})
	for _, c := range []struct{ parent, state, want string }{
		{parent, "", parent}, {parent, "congo=1", parent + " congo=1"}, {"", "", "of the config"},
	} {
		r := h.Run(sdktest.Task{Key: "k", Traceparent: c.parent, Tracestate: c.state})
		if got := strings.TrimSpace(sdktest.Decode[string](t, r)); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestArguments(t *testing.T) {
	file := filepath.Join(t.TempDir(), "args")
	h := host(t, []string{"sh", "-c", `printf '%s\0' "$@" > "$FILE"`, "sh", "{key}", "{dir}|{base}|{stem}", "w={size.w}",
		"{{{n}}}", "{yes}", "{id}.{attempt}.{kind}.{scope}", "{payload.key}", "--", "{opt}"},
		"env", map[string]string{"FILE": file})
	r := h.Run(sdktest.Task{
		Key: "/in/a; rm -rf $HOME *'\"\n.b.mov",
		Payload: map[string]any{"size": map[string]any{"w": 320}, "n": json.Number("1.50"), "yes": true, "key": "own",
			"opt": "-rf"},
	})
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v: %+v", err, r)
	}
	want := []string{"/in/a; rm -rf $HOME *'\"\n.b.mov", "/in|a; rm -rf $HOME *'\"\n.b.mov|a; rm -rf $HOME *'\"\n.b",
		"w=320", "{1.50}", "true", "1.1.exec.", "own", "--", "-rf", ""}
	if diff := cmp.Diff(want, strings.Split(string(got), "\x00")); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// Any value that is filled in stays in its argument.
func TestArgumentsStayWhole(t *testing.T) {
	file := filepath.Join(t.TempDir(), "args")
	h := host(t, []string{"sh", "-c", `printf '%s\0' "$@" > "$FILE"`, "sh", "a{key}", "--", "{x}", "{x}{key}b"}, "env",
		map[string]string{"FILE": file})
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.Rune().Filter(func(r rune) bool { return r != 0 }))
		key, x := text.Draw(t, "key"), text.Draw(t, "x")
		r := h.Run(sdktest.Task{Key: "k" + key, Payload: map[string]any{"x": x}})
		got, err := os.ReadFile(file)
		if err != nil || r.Outcome != "done" {
			t.Fatalf("%v: %+v", err, r)
		}
		if diff := cmp.Diff([]string{"ak" + key, "--", x, x + "k" + key + "b", ""}, strings.Split(string(got),
			"\x00")); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	})
}

// The system's error for a script that it cannot start does not help its author.
func TestStartIsExplained(t *testing.T) {
	for name, tt := range map[string]struct{ content, code, err string }{
		"no first line":   {"echo hello\n", "start", "without a first line such as #!/bin/sh"},
		"no interpreter":  {"#!/nowhere/sh\n", "start", "not the program that its first line names"},
		"carriage return": {"#!/bin/sh\r\necho hello\r\n", "start", "carriage return"},
		"carriage return after env": {"#!/usr/bin/env sh\r\necho hello\r\n", "exit_127",
			"exited with 127: the first line of the script ends with a carriage return"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "script")
			must.OK(t, os.WriteFile(path, []byte(tt.content), 0o700))
			for _, cfg := range []map[string]any{
				{"command": []string{path}}, {"command": []string{"./script"}, "dir": filepath.Dir(path)},
			} {
				r := sdktest.New(t, Plugin(), sdktest.Options{Config: cfg}).Run(sdktest.Task{Key: "k"})
				if r.Code != tt.code || r.Final || !strings.Contains(r.Error, tt.err) {
					t.Errorf("%v: %s: %s", cfg, r.Code, r.Error)
				}
			}
		})
	}
}

func TestRefusedArguments(t *testing.T) {
	for _, tt := range []struct{ name, arg, key, code, err string }{
		{"dash", "{key}", "-rf", "option", `{key} is "-rf"`},
		{"dash behind an empty one", "{e}{key}", "-rf", "option", `{e} is "-rf"`},
		{"dash of an option's value", "--size={key}", "-rf", "", ""},
		{"no field", "{nothing}", "k", "field", "the payload has no field nothing"},
		{"no field in an object", "{obj.b}", "k", "field", "the payload has no field obj.b"},
		{"object", "{obj}", "k", "field", "the payload's field obj is not text"},
		{"list", "{list}", "k", "field", "the payload's field list is not text"},
		{"null", "{null}", "k", "field", "the payload's field null is not text"},
		{"field of text", "{e.x}", "k", "field", "the payload has no field e.x"},
		{"NUL", "{nul}", "k", "argument", "{nul} has a NUL byte"},
		{"too long", "{long}", "k", "argument", "the arguments are too long"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := host(t, []string{"true", tt.arg})
			r := h.Run(sdktest.Task{Key: tt.key, Payload: map[string]any{"e": "", "obj": map[string]any{"a": 1},
				"list": []int{1}, "null": nil, "nul": "a\x00b", "long": strings.Repeat("x", 900_000)}})
			if r.Code != tt.code || r.Final != (tt.code != "") || !strings.Contains(r.Error, tt.err) {
				t.Errorf("%+v, want code %q and %q", r, tt.code, tt.err)
			}
		})
	}
}

func TestProgress(t *testing.T) {
	r := one(t,
		`echo progress 1/4 frames; echo progress 2 >&2; echo 'progress is slow'; printf 'progress 3/4\rprogress 4/4 frames\r\n'; echo progress >&2`)
	want := []sdktest.Progress{{Done: 1, Total: 4, Unit: "frames"}, {Done: 3, Total: 4},
		{Done: 4, Total: 4, Unit: "frames"}}
	// comes whenever it likes
	out := slices.DeleteFunc(slices.Clone(r.Progress), func(p sdktest.Progress) bool { return p.Done == 2 })
	if diff := cmp.Diff(want, out); diff != "" || len(r.Progress) != 4 {
		t.Errorf("%+v: -want +got\n%s", r.Progress, diff)
	}
	if got := sdktest.Decode[string](t, r); got != "progress is slow" || len(r.Log) != 1 ||
		!strings.HasSuffix(r.Log[0], "msg=progress") {
		t.Errorf("result %q, log %q", got, r.Log)
	}
}

// The plugin goes on after any output of a command, and keeps a bounded part of it.
func TestFloods(t *testing.T) {
	for _, tt := range []struct{ name, script, outcome, code, output string }{
		{"lines", `yes 'a line' | head -c 20000000; echo; echo end`, "done", "", `"end"`},
		{"one line", `head -c 20000000 /dev/zero | tr '\0' x`, "failed", "output", ""},
		{"one line that fails", `head -c 20000000 /dev/zero | tr '\0' x; exit 75`, "failed", "exit_75", ""},
		{"long lines on stderr", `head -c 20000000 /dev/zero | tr '\0' x >&2; echo end`, "done", "", `"end"`},
		{"bytes", `head -c 20000000 /dev/urandom; echo; echo end`, "done", "", `"end"`},
		{"progress", `yes 'progress 1/100 frames' | head -c 2000000; printf 'progress 2/100 \377\n'; echo end`, "done", "",
			`"end"`},
		{"JSON that is long", `printf '["'; head -c 60000 /dev/zero | tr '\0' x; printf '"]'`, "done", "",
			`["` + strings.Repeat("x", 60000) + `"]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := one(t, tt.script)
			log := strings.Join(r.Log, "\n")
			if r.Outcome != tt.outcome || r.Code != tt.code || string(r.Output) != tt.output || len(log) > 16<<10 {
				t.Errorf("%s %s: output %.100s, %d bytes of log; want %s %s, %.100s", r.Outcome, r.Code, r.Output, len(log),
					tt.outcome, tt.code, tt.output)
			}
		})
	}
}

func TestSecretsAreHidden(t *testing.T) {
	h := sdktest.New(t, Plugin(), sdktest.Options{
		Config:  map[string]any{"command": shell(`echo "token $TOKEN, pin $PIN"; echo "bad $TOKEN" >&2; exit 1`)},
		Secrets: map[string]string{"secret_env": "# of the service\nUSER_NAME=hunter\nTOKEN=hunter22=x y\n\nPIN=12\r\n"},
	})
	r := h.Run(sdktest.Task{Key: "k"})
	if want := "exited with 1: bad ***"; r.Error != want || string(r.Output) != `"token ***, pin 12"` {
		t.Errorf("error %q, output %s", r.Error, r.Output)
	}
	if all := fmt.Sprint(r); strings.Contains(all, "hunter22") {
		t.Errorf("the secret is in %s", all)
	}
}

func TestSecretsAreHiddenInJSON(t *testing.T) {
	for _, tt := range []struct{ secret, script, want string }{
		{`TOKEN=hun"ter\22`, `printf '%s' '{"token":"hun\"ter\\22"}'`, `{"token":"***"}`},
		{"PORT=54321", `printf '{\n"port": 54321,\n"rows": 17\n}\n'`, `"{\n\"port\": ***,\n\"rows\": 17\n}\n"`},
	} {
		h := sdktest.New(t, Plugin(), sdktest.Options{
			Config:  map[string]any{"command": shell(tt.script)},
			Secrets: map[string]string{"secret_env": tt.secret},
		})
		if r := h.Run(sdktest.Task{Key: "k"}); string(r.Output) != tt.want {
			t.Errorf("%+v", r)
		}
	}
}

// A program's name has no placeholders, but it may have braces.
func TestBracesInTheProgramsName(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "{key}")
	must.OK(t, os.Mkdir(dir, 0o700))
	must.OK(t, os.Symlink("/bin/echo", filepath.Join(dir, "echo")))
	command := []string{strings.NewReplacer("{", "{{", "}", "}}").Replace(dir) + "/echo", "{key}"}
	if r := host(t, command).Run(sdktest.Task{Key: "k"}); string(r.Output) != `"k"` {
		t.Errorf("%+v", r)
	}
}

func TestBadConfig(t *testing.T) {
	for _, tt := range []struct{ config, want string }{
		{`{"command":["{key}"]}`, "command[0]: is a program's name, and has no placeholders"},
		{`{"command":["sh","{a"]}`,
			`command[1]: "{a" has a brace that is not a placeholder such as {key}; write {{ for a brace`},
		{`{"command":["sh","a}"]}`, `write }} for a brace`},
		{`{"command":["sh","a\u0000"]}`, `command[1]: has a NUL byte`},
		{`{"command":["no-such-program"]}`, "command[0]: no-such-program: executable file not found in $PATH"},
		{`{"command":["./exec_test.go"]}`, "command[0]: ./exec_test.go: permission denied"},
		{`{"command":["sh"],"dir":"/nowhere"}`, "dir: /nowhere is not a folder"},
		{`{"command":["sh"],"permanent":[0]}`, "permanent: exit code 0 has another meaning already"},
		{`{"command":["sh"],"snooze":[64]}`, "snooze: exit code 64 has another meaning already"},
		{`{"command":["sh"],"snooze_for":"1ms"}`, "snooze_for: 1ms is not between 1s and 30d"},
		{`{"command":["sh"],"grace":"5s"}`, "grace: 5s is not between 0s and 4s"},
		{`{"command":["sh"],"env":{"A=B":"1"}}`, "env.A=B: is not a variable"},
		{`{"command":["sh"],"env":{"TMPDIR":"/"}}`, "TMPDIR is set for every item"},
		{`{"command":["sh"],"env":{"LEDGERD_ITEM":"1"}}`, "LEDGERD_ITEM is set for every item"},
		{`{"command":["sh"],"secret_env":"TMPDIR=/"}`, "TMPDIR is set for every item: take it out of env and secret_env"},
		{`{"command":["sh"],"emits":["page"]}`, "emits: only answers add items, and without stay there are none"},
		{`{"command":["sh"],"secret_env":"A=1\nhunter22"}`, "secret_env: line 2 is not NAME=VALUE"},
	} {
		cfg := Config{Done: []int{0}, Permanent: []int{64}, SnoozeFor: time.Minute}
		must.OK(t, json.Unmarshal([]byte(tt.config), &struct {
			*Config
			SnoozeFor *duration `json:"snooze_for"`
			Grace     *duration `json:"grace"`
		}{&cfg, (*duration)(&cfg.SnoozeFor), (*duration)(&cfg.Grace)}))
		err := cfg.Validate()
		if err == nil {
			err = cfg.Open(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter22") {
			t.Errorf("%s: %v, want %q", tt.config, err, tt.want)
		}
	}
}

// duration is a duration as text.
type duration time.Duration

func (d *duration) UnmarshalJSON(raw []byte) error {
	v, err := time.ParseDuration(strings.Trim(string(raw), `"`))
	*d = duration(v)
	return err
}

// A command that reads nothing does not hold anything up, nor does one whose output another process
// holds.
func TestOutputIsNotRead(t *testing.T) {
	t.Parallel()
	h := host(t, shell(`exit 0`))
	if r := h.Run(sdktest.Task{Key: "k",
		Payload: map[string]any{"x": strings.Repeat("x", 900_000)}}); r.Outcome != "done" {
		t.Errorf("%+v", r)
	}
	file := filepath.Join(t.TempDir(), "pids")
	began := time.Now()
	r := one(t, `perl -e 'setpgrp; exec "sh", "-c", "echo \$\$ > \"\$1\"; exec sleep 600", "sh", @ARGV' `+file+
		` & while ! [ -s `+file+` ]; do sleep 0.01; done; echo done`)
	if r.Outcome != "done" || string(r.Output) != `"done"` || time.Since(began) > grouptest.Patience {
		t.Errorf("%+v after %v", r, time.Since(began))
	}
	for _, pid := range pids(t, file, 1) {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill() // it has left, as the package comment describes, but is still ours
		}
	}
}
