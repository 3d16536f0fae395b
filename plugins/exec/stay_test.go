package exec

import (
	"encoding/json"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/plugins/exec/group/grouptest"
	"github.com/ledgerd/ledgerd/sdk"
	"github.com/ledgerd/ledgerd/sdk/redact"
	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

// loop is a script that stays: it works the lines of stdin by the script $1, in which $id and $key are of the item.
// $PIDS gets its number.
const loop = `
[ -z "$PIDS" ] || echo $$ >> "$PIDS"
while read -r item; do
	id=${item#*:} id=${id%%,*} key=${item#*'"key":"'} key=${key%%'"'*}
	SCRIPT
done
`

// staying is a plugin with such a script. Its file gets the numbers of the processes.
func staying(t *testing.T, script string, settings ...any) (h *sdktest.Host, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "pids")
	settings = append(settings, "stay", true, "env", map[string]string{"PIDS": file})
	return host(t, shell(strings.Replace(loop, "SCRIPT", script, 1)), settings...), file
}

// given is a script whose answer has the id and the fields in the item's key, with ' for ".
const given = `echo "{\"id\":$id$key}" | tr "'" '"'`

func TestStayConformance(t *testing.T) {
	t.Parallel()
	sdktest.Conformance(t, Plugin(), sdktest.Options{Config: map[string]any{"command": []string{"cat"}, "stay": true}})
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	h, file := staying(t, given, "snooze_for", "90s")
	for _, tt := range []struct {
		answer, outcome, code string
		final                 bool
		delay                 time.Duration
		output, err           string
		atMost                int
	}{
		{"", "done", "", false, 0, "", "", 0},
		{",'output':null,'error':null", "done", "", false, 0, "", "", 0},
		{",'output':{'a':1.50}", "done", "", false, 0, `{"a":1.50}`, "", 0},
		{",'output':'x','outcome':'done'", "done", "", false, 0, `"x"`, "", 0},
		{",'error':'broken'", "failed", "", false, 0, "", "broken", 0},
		{",'error':''", "failed", "", false, 0, "", "no reason was given", 0},
		{",'error':'broken','code':'http_500','output':[1]", "failed", "http_500", false, 0, "[1]", "broken", 0},
		{",'error':'gone','code':'http_404','final':true", "failed", "http_404", true, 0, "", "gone", 0},
		{",'error':'busy','delay_s':1.5", "failed", "", false, 1500 * time.Millisecond, "", "busy", 0},
		{",'outcome':'snoozed','delay_s':600,'error':'not yet'", "snoozed", "", false, 10 * time.Minute, "", "not yet", 0},
		{",'outcome':'snoozed'", "snoozed", "", false, 90 * time.Second, "", "no reason was given", 0},
		{",'outcome':'snoozed','code':'busy','at_most':3", "snoozed", "busy", false, 90 * time.Second, "", "no reason was given", 3},
		{",'outcome':'skipped','error':'the same'", "skipped", "", false, 0, "", "the same", 0},
		{",'outcome':'unknown','error':'cut off','code':'smtp'", "unknown", "smtp", false, 0, "", "cut off", 0},
	} {
		r := h.Run(sdktest.Task{Key: tt.answer + " "})
		got := []any{r.Outcome, r.Code, r.Final, r.Delay, string(r.Output), r.Error, r.AtMost}
		if diff := cmp.Diff([]any{tt.outcome, tt.code, tt.final, tt.delay, tt.output, tt.err, tt.atMost}, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", tt.answer, diff)
		}
	}
	pids(t, file, 1)
}

// An answer adds items of the kinds that the config names, and of no others.
func TestAnswersAdd(t *testing.T) {
	t.Parallel()
	h, file := staying(t, given, "emits", []string{"page", "image"}, "secret_env", "TOKEN=hunter22")
	r := h.Run(sdktest.Task{Key: ",'emit':[{'kind':'page','key':'/a','payload':{'depth':1}},{'kind':'image','key':'b'," +
		"'scope':'s','fingerprint':'f','due':'2030-01-02T03:04:05Z','priority':-1}] "})
	due := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	want := []sdk.Child{{Kind: "page", Scope: "exec/1", Key: "/a", Payload: json.RawMessage(`{"depth":1}`)},
		{Kind: "image", Scope: "s", Key: "b", Fingerprint: "f", Due: due, Priority: -1}}
	if diff := cmp.Diff(want, r.Emitted); diff != "" || r.Outcome != "done" {
		t.Errorf("%s %s: -want +got\n%s", r.Outcome, r.Error, diff)
	}
	for _, emit := range []string{"{'kind':'mail','key':'a'}", "{'kind':'page'}", "'page'",
		"{'kind':'page','key':'a','priority':3}", "{'kind':'page','key':'a','due':'soon'}",
		"{'kind':'page','key':'a','payload':{'t':'hunter22'}}", "{'kind':'page','key':'a','scope':'hunter22'}",
		"{'kind':'hunter22','key':'a'}", "{'kind':'page','key':'\\udce9'}", "{'hunter22':1}",
		"{'kind':'page','key':'a','due':'hunter22'}"} {
		r := h.Run(sdktest.Task{Key: ",'emit':[" + emit + "] "})
		if r.Outcome != "failed" || !r.Final || r.Code != "emit_refused" || len(r.Emitted) > 0 ||
			strings.Contains(fmt.Sprintf("%+v", r), "hunter22") {
			t.Errorf("%s: %+v", emit, r)
		}
	}
	pids(t, file, 1)
}

// A line that is no answer fails its item and replaces the process; the next item is done.
func TestNoAnswers(t *testing.T) {
	t.Parallel()
	all := []struct{ name, script, err string }{
		{"text", `echo hello`, `stdout, "hello": no answer: invalid character`},
		{"another item", `echo "{\"id\":1$id}"`, `the id is "11", and the item at work has the id 1; answer with one line such as {"id":1,"output":…}`},
		{"no id", `echo '{}'`, `the id is ""`},
		{"no object", `echo "[$id]"`, `no answer: it has the type array`},
		{"unknown field", `echo "{\"id\":$id,\"result\":1}"`, `no answer: unknown field "result"`},
		{"wrong type", `echo "{\"id\":$id,\"final\":1}"`, `no answer: final has the type number`},
		{"more", `echo "{\"id\":$id}{}"`, `there is more after the answer`},
		{"outcome", `echo "{\"id\":$id,\"outcome\":\"dne\"}"`, `the outcome "dne" is none of done, skipped`},
		{"done with a code", `echo "{\"id\":$id,\"code\":\"x\"}"`, `an item that is done has no error, code`},
		{"failed and adds", `echo "{\"id\":$id,\"error\":\"x\",\"emit\":[{\"kind\":\"a\"}]}"`, `only an item that is done`},
		{"delay", `echo "{\"id\":$id,\"error\":\"x\",\"delay_s\":-1}"`, `delay_s is not between 0 and 2592000`},
		{"long", `head -c 20000000 /dev/zero | tr '\0' x; echo`, `the line has more than 65536 bytes`},
		{"words on stderr", `echo why >&2; echo hello`, `: why`},
	}
	var cases strings.Builder
	for _, tt := range all {
		fmt.Fprintf(&cases, "'%s') %s ;;\n", tt.name, tt.script)
	}
	h, file := staying(t, `case $key in `+cases.String()+` *) echo "{\"id\":$id}" ;; esac`)
	for n, tt := range all {
		r := h.Run(sdktest.Task{Key: tt.name, ID: 1})
		if r.Outcome != "failed" || r.Code != "answer" || r.Final || !strings.Contains(r.Error, tt.err) {
			t.Errorf("%s: %s, %s, final %v: %s; want %q", tt.name, r.Outcome, r.Code, r.Final, r.Error, tt.err)
		}
		if r := h.Run(sdktest.Task{Key: "good"}); r.Outcome != "done" {
			t.Errorf("after %s: %+v", tt.name, r)
		}
		// The good item has started a process, the first of the bad ones, too.
		grouptest.Gone(t, pids(t, file, n+2)[n])
	}
}

// A second answer for an item counts as output without an item; the item keeps the first answer.
func TestOutputWithoutAnItem(t *testing.T) {
	t.Parallel()
	h, file := staying(t, `printf '{"id":%s,"output":1}\n\n{"id":%s,"output":2}\n' "$id" "$id"`)
	for range 2 {
		if r := h.Run(sdktest.Task{Key: "k"}); r.Outcome != "done" || string(r.Output) != "1" {
			t.Errorf("%+v", r)
		}
	}
	grouptest.Gone(t, pids(t, file, 2)[0])
}

// A process that ends while it has an item fails it, as a command for one item does. Before the next one it may.
func TestProcessEnds(t *testing.T) {
	t.Parallel()
	h, file := staying(t, `[ "$key" = good ] || eval "$key"; echo "{\"id\":$id}"`, "snooze", []int{9})
	for _, tt := range []struct {
		script, outcome, code string
		final                 bool
		err                   string
	}{
		{"exit 0", "failed", "exit_0", false, "exited with 0 before it answered"},
		{"echo broken >&2; exit 1", "failed", "exit_1", false, "exited with 1 before it answered: broken"},
		{"printf half; exit 1", "failed", "exit_1", false, "exited with 1 before it answered"},
		{"exit 65", "failed", "exit_65", true, "exited with 65 before it answered"},
		{"echo later >&2; exit 9", "snoozed", "", false, "exited with 9 before it answered: later"},
		{"kill -s KILL $$", "failed", "signal_9", false, "ended by signal 9 (killed) before it answered"},
	} {
		for _, key := range []string{"good", tt.script} {
			r := h.Run(sdktest.Task{Key: key})
			switch {
			case key == "good" && r.Outcome != "done":
				t.Errorf("before %s: %+v", tt.script, r)
			case key != "good" && (r.Outcome != tt.outcome || r.Code != tt.code || r.Final != tt.final || r.Error != tt.err):
				t.Errorf("%+v, want %q", r, tt.err)
			}
		}
	}
	pids(t, file, 6)
}

// A command that ends at once is started once for each attempt.
func TestEndsAtOnce(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pids")
	h := host(t, shell(`echo $$ >> "$PIDS"; echo no model >&2; exit 4`), "stay", true, "env",
		map[string]string{"PIDS": file})
	for range 3 {
		if r := h.Run(sdktest.Task{Key: "k"}); r.Code != "exit_4" || r.Error != "exited with 4 before it answered: no model" {
			t.Errorf("%+v", r)
		}
	}
	pids(t, file, 3)
	script := filepath.Join(t.TempDir(), "script")
	must.OK(t, os.WriteFile(script, []byte("echo hello\n"), 0o700))
	r := host(t, []string{script}, "stay", true).Run(sdktest.Task{Key: "k"})
	if r.Code != "start" || r.Final || !strings.Contains(r.Error, "without a first line") {
		t.Errorf("%+v", r)
	}
}

// All that an item reports is its own, whichever item the process has next.
func TestReportsOfAnItem(t *testing.T) {
	t.Parallel()
	h, _ := staying(t, `echo "about $key" >&2; echo progress 1/2 frames; echo "{\"id\":$id}"`)
	for n := range 50 {
		key := fmt.Sprint("k", n)
		r := h.Run(sdktest.Task{Key: key})
		if len(r.Log) != 1 || !strings.HasSuffix(r.Log[0], `msg="about `+key+`"`) || len(r.Progress) != 1 ||
			r.Progress[0] != (sdktest.Progress{Done: 1, Total: 2, Unit: "frames"}) {
			t.Fatalf("item %s: %+v", key, r)
		}
	}
}

func TestWhatTheProcessGets(t *testing.T) {
	t.Parallel()
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	h, _ := staying(t, `echo "{\"id\":$id,\"output\":[$item,\"$TMPDIR\",\"$LEDGERD_ITEM\"]}"; : > "$TMPDIR/file"`)
	r := h.Run(sdktest.Task{Key: "k", Attempt: 3, Payload: map[string]any{"n": json.Number("12345678901234567890")}})
	out := sdktest.Decode[[]json.RawMessage](t, r)
	want := `{"id":1,"kind":"exec","scope":"","key":"k","attempt":3,"idempotency_key":"exec//k/1","payload":{"n":12345678901234567890}}`
	if string(out[0]) != want || string(out[2]) != `""` {
		t.Errorf("%s, want %s", r.Output, want)
	}
	var tmp string
	must.OK(t, json.Unmarshal(out[1], &tmp))
	r = h.Run(sdktest.Task{Key: "k", Traceparent: trace, Tracestate: "a=b"})
	if !strings.Contains(string(r.Output), `"traceparent":"`+trace+`","tracestate":"a=b"}`) {
		t.Errorf("%s", r.Output)
	}
	if _, err := os.Stat(filepath.Join(tmp, "file")); err != nil {
		t.Errorf("the folder of the process: %v", err)
	}
	h.Run(sdktest.Task{Key: "k", Fault: sdktest.KillPlugin}) // it may be done before
	gone(t, tmp)
}

// gone waits until a folder has been removed, by another process.
func gone(t *testing.T, path string) {
	t.Helper()
	end := time.After(grouptest.Patience)
	for tick := time.Tick(10 * time.Millisecond); ; {
		if _, err := os.Stat(path); os.IsNotExist(err) {
			return
		}
		select {
		case <-tick:
		case <-end:
			t.Fatalf("%s is still there", path)
		}
	}
}

func TestStaySecretsAreHidden(t *testing.T) {
	t.Parallel()
	h := sdktest.New(t, Plugin(), sdktest.Options{
		Config: map[string]any{"stay": true, "command": shell(strings.Replace(loop, "SCRIPT",
			`echo "bad $TOKEN" >&2; [ "$key" != x ] || echo "$TOKEN"; echo "{\"id\":$id,\"output\":\"$TOKEN\",\"error\":\"$TOKEN\"}"`, 1))},
		Secrets: map[string]string{"secret_env": "TOKEN=hunter22"},
	})
	for key, want := range map[string]string{"k": "***", "x": `stdout, "***"`} {
		r := h.Run(sdktest.Task{Key: key})
		if !strings.HasPrefix(r.Error, want) || strings.Contains(fmt.Sprint(r), "hunter22") || len(r.Log) == 0 {
			t.Errorf("%+v", r)
		}
	}
}

// A long line without an item is cut after its secrets are hidden, so that none of a secret is left.
func TestStaySecretAtTheCut(t *testing.T) {
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	must.OK(t, err)
	defer log.Close()
	defer func(before *os.File) { os.Stderr = before }(os.Stderr)
	os.Stderr = log
	cfg := &Config{secrets: new(redact.Secrets)}
	cfg.secrets.Add("hunter22")
	p := &process{cfg: cfg, cmd: osexec.Command("job")}
	p.stderr([]byte(strings.Repeat("x", maxLogged-4)+"hunter22"), false)
	got, err := os.ReadFile(log.Name())
	must.OK(t, err)
	if !strings.HasSuffix(string(got), "x***\n") {
		t.Errorf("the log ends with %q", got[max(0, len(got)-20):])
	}
}

// The process of an item that is to end, and all that it has started, end with it. Nothing else does.
func TestStoppedItemTakesItsProcess(t *testing.T) {
	const script = `if [ "$key" = k ]; then
		trap 'TRAP' TERM
		sleep 600 & echo $! >> "$PIDS"
		echo progress 1
		while [ -z "$stop" ]; do sleep 0.05; done
	fi
	echo "{\"id\":$id}"`
	for _, tt := range []struct {
		name, trap, outcome string
		task                sdktest.Task
	}{
		{"timeout", "-", "failed", sdktest.Task{Timeout: 300 * time.Millisecond}},
		{"cancelled", "-", "cancelled", sdktest.Task{Fault: sdktest.Cancel, AtProgress: 1}},
		{"cancelled, answers all the same", "stop=yes", "done", sdktest.Task{Fault: sdktest.Cancel, AtProgress: 1}},
		{"cancelled, deaf", "''", "cancelled", sdktest.Task{Fault: sdktest.Cancel, AtProgress: 1}},
		{"lease lost", "-", "released", sdktest.Task{Fault: sdktest.LoseLease, AtProgress: 1}},
		{"plugin killed", "''", "crashed", sdktest.Task{Fault: sdktest.KillPlugin, AtProgress: 1}},
		{"host gone", "''", "lost", sdktest.Task{Fault: sdktest.KillHost, AtProgress: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h, file := staying(t, strings.Replace(script, "'TRAP'", tt.trap, 1), "grace", "500ms")
			tt.task.Key = "k"
			r := h.Run(tt.task)
			if r.Outcome != tt.outcome {
				t.Errorf("%+v, want %s", r, tt.outcome)
			}
			grouptest.Gone(t, pids(t, file, 2)...)
			if r := h.Run(sdktest.Task{Key: "next"}); r.Outcome != "done" {
				t.Errorf("the next item: %+v", r)
			}
			pids(t, file, 3)
		})
	}
}

// A program that does not flush its output gives no answer. The error has a hint.
func TestNothingIsFlushed(t *testing.T) {
	t.Parallel()
	h := host(t, shell("cat > /dev/null"), "stay", true)
	r := h.Run(sdktest.Task{Key: "k", Timeout: 300 * time.Millisecond})
	if want := "does it flush what it prints?"; r.Code != "timeout" || !strings.HasSuffix(r.Error, want) {
		t.Errorf("%+v", r)
	}
}

// Items that are worked at the same time have a process each. Later items use the same processes.
func TestAsManyAsItems(t *testing.T) {
	t.Parallel()
	h, file := staying(t, `while [ "$(wc -l < "$PIDS")" -lt 2 ]; do :; done; echo "{\"id\":$id,\"output\":$$}"`)
	used := map[string]bool{}
	for range 3 {
		var both sync.WaitGroup
		var mu sync.Mutex
		for range 2 {
			both.Go(func() {
				r := h.Run(sdktest.Task{Key: "k"})
				mu.Lock()
				defer mu.Unlock()
				used[string(r.Output)] = true
			})
		}
		both.Wait()
	}
	all := pids(t, file, 2)
	for pid := range used {
		if pid != fmt.Sprint(all[0]) && pid != fmt.Sprint(all[1]) {
			t.Errorf("%s is none of %v", pid, all)
		}
	}
}

// The end of its stdin asks a process to end, in good order.
func TestStdinEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tidy := filepath.Join(dir, "tidy")
	t.Run("work", func(t *testing.T) { // at its end the plugin is stopped
		h := host(t, shell(strings.Replace(loop, "SCRIPT", given, 1)+`echo tidy > "$TIDY"`), "stay", true, "env",
			map[string]string{"TIDY": tidy})
		if r := h.Run(sdktest.Task{Key: " "}); r.Outcome != "done" {
			t.Errorf("%+v", r)
		}
	})
	if text, err := os.ReadFile(tidy); err != nil || string(text) != "tidy\n" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestStayConfig(t *testing.T) {
	for _, tt := range []struct {
		command []string
		done    []int
		want    string
	}{
		{[]string{"sh", "--", "a{key}"}, []int{0}, "command[2]: {key} is of one item, and with stay"},
		{[]string{"sh", "{tmp}"}, []int{0}, "take it from the line on stdin"},
		{[]string{"sh"}, []int{0, 3}, "done: with stay the answer reports that an item is done"},
	} {
		cfg := Config{Command: tt.command, Done: tt.done, Stay: true, SnoozeFor: time.Minute}
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %q", tt.command, err, tt.want)
		}
	}
	for _, cfg := range []*Config{{Emit: []string{"page"}}, {Emit: []string{"No kind"}, Stay: true}} {
		cfg.Command, cfg.Done, cfg.SnoozeFor = []string{"sh"}, []int{0}, time.Minute
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "emits: ") {
			t.Errorf("emits %q, stay %v: %v", cfg.Emit, cfg.Stay, err)
		}
	}
}
