package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/inputs"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

func TestExitCodes(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("doing this: %w", err) }
	for _, test := range []struct {
		err  error
		exit int
		code string
	}{
		{errors.New("x"), exitError, "error"},
		{wrap(usage("c", "", "x")), exitUsage, "c"},
		{wrap(ledger.ErrNotFound), exitError, "not_found"},
		{wrap(ledger.ErrNoLedger), exitNoLedger, "no_ledger"},
		{wrap(ledger.ErrSchema), exitNoLedger, "schema"},
		{wrap(ledger.ErrDenied), exitDenied, "denied"},
		{wrap(ledger.ErrUnavailable), exitTemporary, "unavailable"},
		{wrap(ledger.ErrLeaseLost), exitTaken, "lease_lost"},
		{wrap(&ledger.InvalidError{Field: "key", Reason: "is empty"}), exitUsage, "invalid"},
		{wrap(&ledger.DefinitionError{Kind: "k"}), exitUsage, "conflict"},
		{wrap(&inputs.ArgError{Input: "x", Reason: "y"}), exitUsage, "bad_input"},
		{wrap(&inputs.ArgError{Input: "x", Reason: "y", Err: fs.ErrPermission}), exitDenied, "denied"},
		{wrap(&report.ColumnError{Name: "kee", Known: []string{"key"}}), exitUsage, "unknown_column"},
		{wrap(&pluginproc.StartError{Problem: "p"}), exitError, "plugin_start"},
		{wrap(&pluginproc.StartError{Problem: "p", Err: pluginproc.ErrChecksum}), exitDenied, "checksum"},
		{wrap(&pluginproc.StartError{Problem: "p", Err: pluginproc.ErrWritable}), exitDenied, "writable"},
		{wrap(&os.PathError{Op: "open", Path: "p", Err: syscall.EROFS}), exitDenied, "denied"},
		{wrap(&os.PathError{Op: "open", Path: "p", Err: syscall.ENOSPC}), exitTemporary, "disk_full"},
	} {
		if f := explain(test.err); f.exit != test.exit || f.code != test.code {
			t.Errorf("%v: exit %d %s, want %d %s", test.err, f.exit, f.code, test.exit, test.code)
		}
	}
}

func testApp(out *bytes.Buffer) *app {
	a := &app{interrupts: &interrupts{soft: context.Background(), hard: context.Background()}, stderr: out, stdout: out, config: &config.Config{}}
	a.output = choice{value: "table"}
	return a
}

func TestTell(t *testing.T) {
	var out bytes.Buffer
	a := testApp(&out)
	f := func() *failure {
		return fail(exitUsage, "c", "no \x1b[31m postgres://a:geheim@h/", "first\nsecond")
	}
	a.tell(f())
	if diff := cmp.Diff("ledgerd: no \\x1b[31m postgres://a:***@h/\n  first\n  second\n", out.String()); diff != "" {
		t.Error(diff)
	}
	out.Reset()
	a.tell(fail(exitError, "c", fmt.Sprintf("no plan: %v", context.DeadlineExceeded), ""))
	if diff := cmp.Diff("ledgerd: no plan: no answer in time\n", out.String()); diff != "" {
		t.Error(diff)
	}
	out.Reset()
	a.output.value, a.parsed = "json", true
	a.tell(f())
	if diff := cmp.Diff(`{"error":{"code":"c","message":"no \u001b[31m postgres://a:***@h/","hint":"first\nsecond"},"exit":2}`+"\n", out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestEarlyOutput(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"ls", "--bogus", "-o", "json"}, "json"}, {[]string{"--output=jsonl", "ls"}, "jsonl"}, {[]string{"ls", "-ojson"}, "json"},
		{[]string{"ls", "-o"}, ""}, {[]string{"run", "k", "--", "-o", "json"}, ""}, {nil, ""},
	} {
		if got := earlyOutput(test.args); got != test.want {
			t.Errorf("%q: %q, want %q", test.args, got, test.want)
		}
	}
}

func TestConclude(t *testing.T) {
	var out bytes.Buffer
	a := testApp(&out)
	if code := a.conclude(nil); code != 0 {
		t.Errorf("exit %d", code)
	}
	if code := a.conclude(errors.Join(status(3), nil)); code != 3 || out.Len() > 0 {
		t.Errorf("exit %d, %s", code, out.String())
	}
	if code := a.conclude(errors.New("of the command line")); code != exitUsage {
		t.Errorf("exit %d before the command has begun", code)
	}
	a.parsed = true
	if code := a.conclude(errors.New("x")); code != exitError {
		t.Errorf("exit %d", code)
	}
	if code := a.conclude(&os.PathError{Op: "write", Path: "|1", Err: syscall.EPIPE}); code != exitError {
		t.Errorf("exit %d", code)
	}
	a.got.Store(int32(syscall.SIGTERM))
	if code := a.conclude(fmt.Errorf("reading: %w", context.Canceled)); code != 143 {
		t.Errorf("exit %d after SIGTERM", code)
	}
}

func TestFlagValues(t *testing.T) {
	var s shard
	for text, ok := range map[string]bool{"0/4": true, "3/4": true, "0/1024": true, "4/4": false, "-1/4": false, "0/1025": false, "1": false, "a/b": false, "0/0": false} {
		if err := s.Set(text); (err == nil) != ok {
			t.Errorf("--shard %s: %v", text, err)
		}
	}
	var d duration
	if err := d.Set("2d12h"); err != nil || d.Duration != 60*time.Hour {
		t.Errorf("%s, %v", d.Duration, err)
	}
	var list []inputs.Rule
	for _, r := range []struct {
		exclude bool
		pattern string
	}{{true, "*"}, {false, "*.csv"}} {
		if err := (&rules{&list, r.exclude}).Set(r.pattern); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]inputs.Rule{{Exclude: true, Pattern: "*"}, {Pattern: "*.csv"}}, list); diff != "" {
		t.Error(diff)
	}
	if err := (&rules{&list, false}).Set("[a"); err == nil {
		t.Error("a broken pattern was accepted")
	}
}

func TestParseDue(t *testing.T) {
	if at, err := parseDue("2h"); err != nil || time.Until(at) > 2*time.Hour || time.Until(at) < time.Hour {
		t.Errorf("%s, %v", at, err)
	}
	want := time.Date(2026, 11, 20, 10, 30, 0, 0, time.Local)
	for _, text := range []string{"2026-11-20 10:30", "2026-11-20T10:30", want.Format(time.RFC3339)} {
		if at, err := parseDue(text); err != nil || !at.Equal(want) {
			t.Errorf("%s: %s, %v", text, at, err)
		}
	}
	if _, err := parseDue("tomorrow"); err == nil || explain(err).exit != exitUsage {
		t.Error(err)
	}
}

func TestSettingError(t *testing.T) {
	s, err := settings.Compile([]byte(`{"type":"object","properties":{"delimiter":{"type":"string"},"rows":{"type":"integer"}},"additionalProperties":false}`))
	if err != nil {
		t.Fatal(err)
	}
	given := []string{"delimeter=;"}
	_, err = s.Parse(nil, given)
	f := explain(settingError(err, "filecsv", settingsOf{"payload", "--set", given}, settingsAt{}))
	if diff := cmp.Diff([]any{exitUsage, `filecsv has no payload field "delimeter" (--set delimeter=;)`, "did you mean delimiter?   fields: ledgerd run filecsv --help"},
		[]any{f.exit, f.message, f.hint}); diff != "" {
		t.Error(diff)
	}
	_, err = s.Parse(nil, []string{"rows=many"})
	if f := explain(settingError(err, "filecsv", settingsOf{"payload", "--set", given}, settingsAt{})); f.message != `filecsv: rows: must be a whole number, not "many"` {
		t.Error(f.message)
	}
}

// TestMigrateCommand: a hint is a command that can be pasted, and shows no password.
func TestMigrateCommand(t *testing.T) {
	for _, test := range []struct{ db, source, want string }{
		{"", "", "ledgerd db migrate"},
		{"sqlite:a b.db", "LEDGERD_DB", "ledgerd db migrate"},
		{"sqlite:/a/b-1.db", dbFlag, "ledgerd db migrate --db sqlite:/a/b-1.db"},
		{"sqlite:it's.db", dbFlag, `ledgerd db migrate --db 'sqlite:it'\''s.db'`},
		{"postgres://ann@h/d?search_path=s&x=y", dbFlag, "ledgerd db migrate --db 'postgres://ann@h/d?search_path=s&x=y'"},
		{"sqlite:été.db", dbFlag, "ledgerd db migrate --db 'sqlite:été.db'"},
		{"postgres://ann:secret@h/d", dbFlag, "ledgerd db migrate with the same --db"},
	} {
		a := &app{dbSource: test.source, config: &config.Config{}}
		a.db = test.db
		if got := a.migrateCommand(); got != test.want {
			t.Errorf("%s: %s, want %s", test.db, got, test.want)
		}
	}
}
