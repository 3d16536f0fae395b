package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/intake"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/act"
	"github.com/ledgerd/ledgerd/sdk"
)

func TestExitCodes(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("doing this: %w", err) }
	for _, test := range []struct {
		err  error
		exit int
		code string
	}{
		{errors.New("x"), failure.ExitError, "error"},
		{wrap(failure.Usage("c", "", "x")), failure.ExitUsage, "c"},
		{wrap(ledger.ErrNotFound), failure.ExitError, "not_found"},
		{wrap(ledger.ErrNoLedger), failure.ExitNoLedger, "no_ledger"},
		{wrap(ledger.ErrSchema), failure.ExitNoLedger, "schema"},
		{wrap(ledger.ErrDenied), failure.ExitDenied, "denied"},
		{wrap(ledger.ErrUnavailable), failure.ExitTemporary, "unavailable"},
		{wrap(ledger.ErrLeaseLost), failure.ExitTaken, "lease_lost"},
		{wrap(&ledger.InvalidError{Field: "key", Reason: "is empty"}), failure.ExitUsage, "invalid"},
		{wrap(&ledger.DefinitionError{Kind: "k"}), failure.ExitUsage, "conflict"},
		{wrap(&intake.ArgError{Input: "x", Reason: "y"}), failure.ExitUsage, "bad_input"},
		{wrap(&intake.ArgError{Input: "x", Reason: "y", Err: fs.ErrPermission}), failure.ExitDenied, "denied"},
		{wrap(&report.ColumnError{Name: "kee", Known: []string{"key"}}), failure.ExitUsage, "unknown_column"},
		{wrap(&pluginproc.StartError{Problem: "p"}), failure.ExitError, "plugin_start"},
		{wrap(&pluginproc.StartError{Problem: "p", Err: pluginproc.ErrChecksum}), failure.ExitDenied, "checksum"},
		{wrap(&pluginproc.StartError{Problem: "p", Err: pluginproc.ErrWritable}), failure.ExitDenied, "writable"},
		{wrap(&os.PathError{Op: "open", Path: "p", Err: syscall.EROFS}), failure.ExitDenied, "denied"},
		{wrap(&os.PathError{Op: "open", Path: "p", Err: syscall.ENOSPC}), failure.ExitTemporary, "disk_full"},
	} {
		if f := failure.Explain(test.err); f.Exit != test.exit || f.Code != test.code {
			t.Errorf("%v: exit %d %s, want %d %s", test.err, f.Exit, f.Code, test.exit, test.code)
		}
	}
}

// TestFieldError: the field of an error is named as the command names it, also if the error is wrapped.
func TestFieldError(t *testing.T) {
	wrap := func(field string) error {
		return fmt.Errorf("doing this: %w", &ledger.InvalidError{Field: field, Reason: "is odd", Hint: "do that"})
	}
	for field, want := range map[string]string{"max_failures": "--max-failures: is odd",
		"name": "name of the lock: is odd"} {
		err := FieldError(wrap(field), "invalid", map[string]string{"name": "name of the lock"})
		if f := failure.Explain(err); f.Message != want || f.Hint != "do that" || f.Exit != failure.ExitUsage {
			t.Errorf("%s: %+v, want %s", field, f, want)
		}
	}
	if err := FieldError(ledger.ErrNotFound, "invalid", nil); err != ledger.ErrNotFound {
		t.Error(err)
	}
}

func quietApp(out io.Writer) *App {
	return New(&Interrupts{Soft: context.Background(), Hard: context.Background()}, Program{}, strings.NewReader(""), out,
		out)
}

func TestTell(t *testing.T) {
	var out bytes.Buffer
	a := quietApp(&out)
	f := func() *failure.Error {
		return failure.New(failure.ExitUsage, "c", "no \x1b[31m postgres://a:geheim@h/", "first\nsecond")
	}
	a.Tell(f())
	if diff := cmp.Diff("ledgerd: no \\x1b[31m postgres://a:***@h/\n  first\n  second\n", out.String()); diff != "" {
		t.Error(diff)
	}
	out.Reset()
	a.Tell(failure.New(failure.ExitError, "c", fmt.Sprintf("no plan: %v", context.DeadlineExceeded), ""))
	if diff := cmp.Diff("ledgerd: no plan: no answer in time\n", out.String()); diff != "" {
		t.Error(diff)
	}
	out.Reset()
	a.Output.Value, a.Parsed = "json", true
	a.Tell(f())
	if diff := cmp.Diff(
		`{"error":{"code":"c","message":"no \u001b[31m postgres://a:***@h/","hint":"first\nsecond"},"exit":2}`+
			"\n", out.String()); diff != "" {
		t.Error(diff)
	}
}

// A hint of the ledger is printed with the command of its act. JSON has the act as well.
func TestTellActs(t *testing.T) {
	f := func() *failure.Error {
		return failure.Explain(fmt.Errorf("x: %w", &ledger.Error{Kind: ledger.ErrSchema, Message: "m", Hint: "migrate it",
			Act: act.Act{Name: act.Migrate}}))
	}
	var out bytes.Buffer
	a := quietApp(&out)
	low := f()
	low.Hint += "\nsecond"
	a.Tell(low)
	if diff := cmp.Diff("ledgerd: x: m\n  migrate it: ledgerd db migrate\n  second\n", out.String()); diff != "" {
		t.Error(diff)
	}
	out.Reset()
	a.Output.Value, a.Parsed = "json", true
	a.Tell(f())
	if diff := cmp.Diff(`{"error":{"code":"schema","message":"x: m","hint":"migrate it: ledgerd db migrate",`+
		`"acts":[{"act":"migrate"}]},"exit":10}`+"\n", out.String()); diff != "" {
		t.Error(diff)
	}
}

// Words has a command for every act.
func TestEveryActIsWorded(t *testing.T) {
	tree, err := parser.ParseFile(token.NewFileSet(), "../../../ledger/act/act.go", nil, 0)
	must.OK(t, err)
	names := 0
	ast.Inspect(tree, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && strings.HasPrefix(lit.Value, `"`) {
			names++
			name := act.Name(strings.Trim(lit.Value, `"`))
			if words := Words(act.Act{Name: name}); !strings.HasPrefix(words, "ledgerd ") {
				t.Errorf("%s is worded as %q", name, words)
			}
		}
		return true
	})
	if names < 10 {
		t.Errorf("found only %d acts; this test has lost its object", names)
	}
}

func TestWords(t *testing.T) {
	for _, test := range []struct {
		acts []act.Act
		want string
	}{
		{nil, ""},
		{[]act.Act{{}}, ""},
		{[]act.Act{{Name: act.Retry, Item: 7}}, "ledgerd retry 7"},
		{[]act.Act{{Name: act.Work, Kind: "k"}, {Name: act.Release, Agent: "host/9/k"}},
			"ledgerd work --kind k, or ledgerd finish --outcome released --where agent:host/9/k --force"},
		{[]act.Act{{Name: act.Release, Agent: "ann's desk"}},
			`ledgerd finish --outcome released --where 'agent:"ann'\''s desk"' --force`},
		{[]act.Act{{Name: act.Retry, Item: 7}, {Name: act.Finish, Item: 7}, {Name: act.Cancel, Item: 7}},
			"ledgerd retry 7, ledgerd finish 7 --agent YOU, or ledgerd cancel 7"},
	} {
		if got := Words(test.acts...); got != test.want {
			t.Errorf("%+v: %s, want %s", test.acts, got, test.want)
		}
	}
}

func TestEarlyOutput(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"ls", "--bogus", "-o", "json"}, "json"}, {[]string{"--output=jsonl", "ls"}, "jsonl"}, {[]string{"ls",
			"-ojson"}, "json"},
		{[]string{"ls", "-o"}, ""}, {[]string{"run", "k", "--", "-o", "json"}, ""}, {nil, ""},
	} {
		if got := EarlyOutput(test.args); got != test.want {
			t.Errorf("%q: %q, want %q", test.args, got, test.want)
		}
	}
}

func TestConclude(t *testing.T) {
	var out bytes.Buffer
	a := quietApp(&out)
	if code := a.Conclude(nil); code != 0 {
		t.Errorf("exit %d", code)
	}
	if code := a.Conclude(errors.Join(failure.Status(3), nil)); code != 3 || out.Len() > 0 {
		t.Errorf("exit %d, %s", code, out.String())
	}
	if code := a.Conclude(errors.New("of the command line")); code != failure.ExitUsage {
		t.Errorf("exit %d before the command has begun", code)
	}
	a.Parsed = true
	if code := a.Conclude(errors.New("x")); code != failure.ExitError {
		t.Errorf("exit %d", code)
	}
	broken := &ledger.Error{Kind: ledger.ErrUnavailable, Message: "the connection broke", Err: syscall.EPIPE}
	if code := a.Conclude(broken); code != failure.ExitTemporary || !strings.Contains(out.String(), broken.Message) {
		t.Errorf("exit %d, %s", code, out.String())
	}
	out.Reset()
	closed, end := io.Pipe()
	must.OK(t, closed.CloseWithError(&os.PathError{Op: "write", Path: "|1", Err: syscall.EPIPE}))
	a.Stdout.To = end
	fmt.Fprint(a.Stdout, "x")
	if code := a.Conclude(nil); code != failure.ExitError || out.Len() > 0 {
		t.Errorf("exit %d, %s", code, out.String())
	}
	a.Got.Store(int32(syscall.SIGTERM))
	if code := a.Conclude(fmt.Errorf("reading: %w", context.Canceled)); code != 143 {
		t.Errorf("exit %d after SIGTERM", code)
	}
}

func TestFlagValues(t *testing.T) {
	var s ShardFlag
	for text, ok := range map[string]bool{"0/4": true, "3/4": true, "0/1024": true, "4/4": false, "-1/4": false,
		"0/1025": false, "1": false, "a/b": false, "0/0": false} {
		if err := s.Set(text); (err == nil) != ok {
			t.Errorf("--shard %s: %v", text, err)
		}
	}
	var d DurationFlag
	if err := d.Set("2d12h"); err != nil || d.Duration != 60*time.Hour {
		t.Errorf("%s, %v", d.Duration, err)
	}
	var list []intake.Rule
	for _, r := range []struct {
		exclude bool
		pattern string
	}{{true, "*"}, {false, "*.csv"}} {
		must.OK(t, (&RuleFlag{&list, r.exclude}).Set(r.pattern))
	}
	if diff := cmp.Diff([]intake.Rule{{Exclude: true, Pattern: "*"}, {Pattern: "*.csv"}}, list); diff != "" {
		t.Error(diff)
	}
	if err := (&RuleFlag{&list, false}).Set("[a"); err == nil {
		t.Error("a broken pattern was accepted")
	}
}

// Only a key below the working directory becomes relative. Its first name may begin with two dots.
func TestShortKey(t *testing.T) {
	t.Chdir(t.TempDir())
	cwd, err := os.Getwd()
	must.OK(t, err)
	for key, want := range map[string]string{
		filepath.Join(cwd, "in", "a"): filepath.Join("in", "a"), filepath.Join(cwd, "..data"): "..data",
		filepath.Dir(cwd): filepath.Dir(cwd), cwd + "x": cwd + "x", "a": "a",
	} {
		if got := ShortKey()(key); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}

// TestWorkerCommand: the command that works a kind has the required settings that the ledger shows as a whole.
func TestWorkerCommand(t *testing.T) {
	type config struct {
		Command []string `json:"command" schema:"required" doc:"the program"`
	}
	p := Program{Plugins: map[string]func() *sdk.Plugin{"x": func() *sdk.Plugin {
		return sdk.New("x", "1.0.0", func(context.Context, *config, sdk.Item[struct{}]) (string, error) { return "", nil })
	}}}
	lc := kinds.NewLocal(map[string]pluginhost.Linked{"x": p.Linked("x")})
	for have, want := range map[string]string{`["a"]`: `'command:=["a"]'`, `"… (612 bytes)"`: "'command=…'",
		`"***"`: "'command=…'"} {
		command, _ := lc.Worker(t.Context(), "clips", ledger.Kind{Plugin: "x", Config: `{"command":` + have + `}`})
		if command != "ledgerd work --kind clips --with "+want {
			t.Error(command)
		}
	}
}
