package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// without has the commands without -o json, and why they have none.
var without = map[string]string{
	"serve": "runs until it is stopped, and logs", "api": "runs until it is stopped, and logs", "ui": "runs until it is stopped, and prints a link", "mcp": "its output is the messages of a protocol", "lock run": "its output is that of the command that it runs",
	"self completion": "a script for a shell", "self man": "a manual page", "docs": "Markdown",
	"plugin proto": "a .proto file", "help": "for people",
}

// shapeRecorder runs commands with -o json, and collects the shape of their output: path in it → types.
type shapeRecorder struct {
	*machine
	shapes map[string]map[string]map[string]bool // command → path → types
}

// do runs a command in this process, given as its name and arguments, and returns its output.
func (r *shapeRecorder) do(exit int, command string, args ...string) any {
	r.t.Helper()
	return r.decode(command, "json", exit, args)[0]
}

// decode runs a command and reads its values: one with json, any number with jsonl.
func (r *shapeRecorder) decode(command, format string, exit int, args []string) (values []any) {
	r.t.Helper()
	return r.read(command, format, r.here(exit, line(command, format, args)...))
}

// line returns a command line.
func line(command, format string, args []string) []string {
	return slices.Concat(strings.Fields(command), []string{"-o", format, "-y"}, args)
}

// read reads the output of a command.
func (r *shapeRecorder) read(command, format, text string) (values []any) {
	r.t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	for {
		var v any
		err := d.Decode(&v)
		if err == io.EOF {
			break
		}
		if err != nil {
			r.t.Fatalf("%s -o %s: %v", command, format, err)
		}
		values = append(values, v)
		r.note(command, "", "", v)
	}
	if format == "json" && len(values) != 1 {
		r.t.Fatalf("%s: %d values, not one", command, len(values))
	}
	return values
}

var (
	snakeCase  = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	someTime   = regexp.MustCompile(`^\d{4}-\d\d-\d\d[T ]\d\d:\d\d`)
	timeForm   = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$`)
	goDuration = regexp.MustCompile(`^-?(\d+(\.\d+)?(ns|µs|us|ms|s|m|h))+$`)
	aboutTime  = regexp.MustCompile(
		`(^|_)(seconds|timeout|delay|lease|grace|wait|age|duration|latency|skew|elapsed|took|eta|keep|backoff)(_|$)`)
	numericUnit = regexp.MustCompile(`(_us|_ms|_s|_1h|_1m|seconds|per_second)$`)
	// freeKeys are objects whose keys come from users, or are states and outcomes.
	freeKeys = []string{"payload", "output", "unchanged", "emitted", "outcomes"}
	// verbatim are commands that print values as they are written in the config file.
	verbatim = []string{"config print"}
)

// note checks a value and records its shape.
func (r *shapeRecorder) note(command, path, key string, v any) {
	r.t.Helper()
	kind := "null"
	switch v := v.(type) {
	case map[string]any:
		kind = "object"
		for k, below := range v {
			if slices.Contains(freeKeys, key) {
				break
			}
			if !snakeCase.MatchString(k) {
				r.t.Errorf("%s: the key %q is not in snake_case", command, path+"."+k)
			}
			if _, number := below.(json.Number); number && aboutTime.MatchString(k) && !numericUnit.MatchString(k) {
				r.t.Errorf("%s: %s is a number without a unit", command, path+"."+k)
			}
			r.note(command, path+"."+k, k, below)
		}
	case []any:
		kind = "array"
		for _, below := range v {
			r.note(command, path+"[]", "", below)
		}
	case string:
		kind = "string"
		switch {
		case someTime.MatchString(v) && !timeForm.MatchString(v):
			r.t.Errorf("%s: %s is the time %q", command, path, v)
		case goDuration.MatchString(v) && !slices.Contains(verbatim, command):
			r.t.Errorf("%s: %s is the duration %q", command, path, v)
		case timeForm.MatchString(v):
			kind = "time"
		}
	case json.Number:
		kind = "number"
	case bool:
		kind = "bool"
	}
	if r.shapes[command] == nil {
		r.shapes[command] = map[string]map[string]bool{}
	}
	if r.shapes[command][path] == nil {
		r.shapes[command][path] = map[string]bool{}
	}
	r.shapes[command][path][kind] = true
}

// Each command prints one JSON value with -o json, with keys in snake_case, one form each of times and durations, and
// the fields of testdata/json.golden, since scripts rely on them.
func TestJSON(t *testing.T) {
	shapes := map[string]map[string]map[string]bool{}
	// Not parallel, since both fill the same map.
	t.Run("sqlite", func(t *testing.T) {
		(&shapeRecorder{newMachine(t, "sqlite:"+filepath.Join(t.TempDir(), "ledger.db")), shapes}).walk()
	})
	t.Run("postgres", func(t *testing.T) { (&shapeRecorder{newMachine(t, pgtest.SchemaURL(t)), shapes}).walk() })
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		name := strings.TrimPrefix(c.CommandPath(), "ledgerd ")
		if c.RunE != nil && shapes[name] == nil && without[name] == "" && !c.HasSubCommands() {
			t.Errorf("no case checks what %s prints with -o json", name)
		}
		for _, below := range c.Commands() {
			visit(below)
		}
	}
	for _, c := range cli.Root(testApp(new(bytes.Buffer))).Commands() {
		visit(c)
	}
	var got strings.Builder
	got.WriteString("# What commands print with -o json, as path and types; tail: a line of -o jsonl.\n")
	for _, command := range slices.Sorted(maps.Keys(shapes)) {
		fmt.Fprintf(&got, "\n%s\n", command)
		for _, path := range slices.Sorted(maps.Keys(shapes[command])) {
			fmt.Fprintf(&got, "  %-40s %s\n", path, strings.Join(slices.Sorted(maps.Keys(shapes[command][path])), "|"))
		}
	}
	const file = "testdata/json.golden"
	if *update {
		must.OK(t, os.WriteFile(file, []byte(got.String()), 0o644))
	}
	want, err := os.ReadFile(file)
	must.OK(t, err)
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("fields may be added, but not removed or renamed (-update writes the file anew):\n%s", diff)
	}
}

// walk runs all commands.
func (r *shapeRecorder) walk() {
	t := r.t
	dir := t.TempDir()
	r.env = append(r.env, "LEDGERD_LISTEN=127.0.0.1:0", "XDG_CONFIG_HOME="+dir)
	for name, text := range map[string]string{"a.csv": "a,email\n1,2\n", "bad.csv": "a,b\n1,2\n", "half.part": "",
		"wrong.toml": "leese = \"1m\"\n"} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	r.do(failure.ExitOK, "db migrate")
	r.do(failure.ExitOK, "db status")
	r.do(failure.ExitOK, "db environment")
	r.do(failure.ExitOK, "kind set", "page", "--input", "line", "--keep", "forever", "--timeout", "90s")
	r.do(failure.ExitOK, "add", "page", "one", "two", "three", "four", "five", "--shard-key", "desk")
	if r.onSQLite() { // output that does not depend on the database is checked once
		r.walkItems(dir)
		r.walkPrograms(dir)
	}
	r.doctor()
	r.do(failure.ExitOK, "db copy", "--to", r.other())
	backup := r.start("db", "backup", filepath.Join(dir, "kept.db"), "-o", "json")
	code := r.exit(backup)
	if r.onSQLite() {
		if code != failure.ExitOK {
			t.Fatalf("exit %d\n%s", code, backup.stderr.String())
		}
		r.read("db backup", "json", backup.stdout.String())
		r.do(failure.ExitOK, "db restore", filepath.Join(dir, "kept.db"), "--db", "sqlite:"+filepath.Join(dir, "back.db"))
	} else {
		r.refusal("db backup", failure.ExitUsage, backup)
		r.refusal("db restore", failure.ExitUsage, r.start("db", "restore", "ledger.dump", "-o", "json"))
	}
	r.do(failure.ExitOK, "db restored", "-y", "--force")
}

// walkItems runs the commands about items and kinds.
func (r *shapeRecorder) walkItems(dir string) {
	good, bad := filepath.Join(dir, "a.csv"), filepath.Join(dir, "bad.csv")
	r.do(failure.ExitUnfinished, "run", "filecsv", good, bad, filepath.Join(dir, "half.part"), "--set", "required=email")
	r.decode("run", "jsonl", failure.ExitUnfinished, []string{"filecsv", bad, "--again", "--set", "required=email"})
	r.do(failure.ExitOK, "add", "page", "later", "--due", "2h")
	r.do(failure.ExitOK, "add", "page", "free", "--scope", "spring")
	r.do(failure.ExitOK, "work", "--drain", "--kind", "filecsv")
	r.walkClaims()
	r.walkQuestions(good, bad)
	r.walkActs()
	r.do(failure.ExitOK, "db verify")
	r.refusal("watch", failure.ExitUsage, r.start("watch", "-o", "json"))
	r.refusal("show", failure.ExitError, r.start("show", "nothing", "-o", "json"))
	r.refusal("ls", failure.ExitUsage, r.start("ls", "--state", "daed", "-o", "json"))
}

// walkPrograms runs the commands about plugins and the config.
func (r *shapeRecorder) walkPrograms(dir string) {
	t := r.t
	hello := filepath.Join(dir, "ledgerd-plugin-hello")
	link(t, hello)
	script := filepath.Join(dir, "hello") // the name of the test's own program differs
	text := []byte("#!/bin/sh\nexec " + hello + "\n")
	must.OK(t, os.WriteFile(script, text, 0o700))
	fleet := filepath.Join(dir, "fleet.toml")
	must.OK(t, os.WriteFile(fleet, fmt.Appendf(nil, "[plugins.hello]\nsource = %q\nsha256 = [\"%x\"]\n", script,
		sha256.Sum256(text)), 0o600))
	for _, args := range [][]string{{"plugin add", script}, {"config check"}, {"config print"},
		{"config init", "--config", filepath.Join(dir, "new.toml")}, {"plugin ls"},
		{"plugin fetch", "--config", fleet}, {"plugin rm", "hello"},
		{"plugin new", "thumbs", "--dir", filepath.Join(dir, "thumbs")},
		{"plugin run", "effect", "thing", "--set", "how=emit"}, {"self version"},
		{"token new", "shop", "--scope", "read,add", "--kind", "page"}} {
		r.read(args[0], "json", r.run(failure.ExitOK, line(args[0], "json", args[1:])...)) // they start programs
	}
	r.do(failure.ExitOK, "db roles", "--db", "postgres://app@db1/work")
	r.do(failure.ExitUsage, "config check", "--config", filepath.Join(dir, "wrong.toml"))
	check := r.start("plugin", "check", "/bin/true", "-o", "json") // few checks are made of what does not start
	r.refusal("plugin check", failure.ExitError, check)
	r.read("plugin check", "json", check.stdout.String())
}

// refusal checks the form of an error.
func (r *shapeRecorder) refusal(command string, want int, p *started) {
	r.t.Helper()
	code := r.exit(p)
	said := strings.Split(strings.TrimSpace(p.stderr.String()), "\n")
	var v struct {
		Error struct{ Code, Message, Hint string }
		Exit  int
	}
	if err := json.Unmarshal([]byte(said[len(said)-1]), &v); err != nil || code != want || v.Exit != want ||
		v.Error.Code == "" || v.Error.Message == "" {
		r.t.Errorf("%s: exit %d, %v\n%s", command, code, err, p.stderr.String())
	}
}

// walkClaims runs the commands that claim, finish and release.
func (r *shapeRecorder) walkClaims() {
	token := func(claimed any) string {
		r.t.Helper()
		rows := claimed.([]any)
		if len(rows) != 1 {
			r.t.Fatalf("claimed: %v", rows)
		}
		return rows[0].(map[string]any)["token"].(string)
	}
	r.do(failure.ExitOK, "claim", "page", "--agent", "ann", "--lease", "90s")
	first := token(r.do(failure.ExitOK, "claim", "page", "--agent", "ann"))
	r.do(failure.ExitOK, "agents")
	r.do(failure.ExitOK, "ls")
	r.do(failure.ExitOK, "show", "one")
	r.do(failure.ExitOK, "finish", first)
	r.do(failure.ExitTaken, "finish", "1.77")
	second := token(r.do(failure.ExitOK, "claim", "page", "--agent", "ann"))
	r.do(failure.ExitOK, "finish", "--outcome", "released", second)
	doubt := token(r.do(failure.ExitOK, "claim", "page", "--agent", "ann"))
	r.do(failure.ExitOK, "finish", doubt, "--outcome", "permanent", "--code", "short", "--error", "too short")
}

// walkQuestions runs the commands that only read.
func (r *shapeRecorder) walkQuestions(good, bad string) {
	l := r.ledger()
	beat(r.t, l, ledger.Agent{Name: "host/7/a", Host: "host", PID: 7, Version: "1",
		Kinds:   map[string]string{"page": "x@1+a"},
		Stalled: map[string]time.Time{"page": time.Now().Add(time.Minute)}, Shard: scheduler.Shard{Index: 1, Count: 2}})
	r.do(failure.ExitOK, "agents")
	beat(r.t, l, ledger.Agent{Name: "host/7/a", Kinds: map[string]string{}})
	must.OK(r.t, l.Beat(r.t.Context(), ledger.Agent{Name: "host/7/a"}, 0))
	for _, key := range []string{good, bad, "later", "two"} {
		r.do(failure.ExitOK, "show", key)
	}
	for _, args := range [][]string{{"ls"}, {"journal"}, {"stats"}, {"stats", "--by", "kind"}, {"errors"}, {"kind ls"},
		{"lock ls"}} {
		r.do(failure.ExitOK, args[0], args[1:]...)
	}
	r.do(failure.ExitOK, "watch", good)
	r.do(failure.ExitTemporary, "watch", "later", "--timeout", "20ms")
	r.decode("watch", "jsonl", failure.ExitOK, []string{"-n", "2", "--limit", "2"})
}

// walkActs runs the commands that change something.
func (r *shapeRecorder) walkActs() {
	r.do(failure.ExitOK, "kind show", "page")
	r.do(failure.ExitOK, "kind pause", "page")
	r.do(failure.ExitOK, "kind resume", "page")
	r.do(failure.ExitOK, "retry", "--where", "state:dead kind:page")
	r.do(failure.ExitOK, "cancel", "--where", "kind:page state:ready", "--dry-run")
	r.do(failure.ExitOK, "cancel", "free", "--scope", "spring")
	r.do(failure.ExitOK, "prune", "--older", "0s", "--kind", "filecsv")
	r.do(failure.ExitOK, "prune", "--scope", "spring", "-y")
	held := r.start("lock", "run", "nightly", "--", "sleep", "60")
	r.until("the lock is held", func() bool { return strings.Contains(r.run(failure.ExitOK, "lock", "ls"), "nightly") })
	r.do(failure.ExitOK, "lock ls")
	r.do(failure.ExitOK, "lock release", "nightly")
	_ = held.Process.Kill()
	<-held.done
}

// doctor runs doctor: it exits with 1 on a Postgres for tests, since that does not wait for its disk.
func (r *shapeRecorder) doctor() {
	r.t.Helper()
	p := r.start("doctor", "-o", "json")
	code := r.exit(p)
	if code > failure.ExitError {
		r.t.Fatalf("doctor: exit %d\n%s", code, p.stderr.String())
	}
	r.read("doctor", "json", p.stdout.String())
}
