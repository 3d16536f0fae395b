package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/sdk"
)

// TestMain lets the test binary be ledgerd: scripts run it as a separate process, and it starts itself as the process
// of a bundled plugin, as the real program does.
func TestMain(m *testing.M) {
	if strings.HasSuffix(os.Args[0], ".test") {
		if sdk.Started() { // by a command that runs in the process of a test
			main()
		}
		// Commands that run in this process see no setting of whoever runs the tests, and have the time zone of scripts.
		for _, setting := range os.Environ() {
			if name, _, _ := strings.Cut(setting, "="); strings.HasPrefix(name, "LEDGERD_") &&
				!strings.HasPrefix(name, "LEDGERD_TEST_") {
				os.Unsetenv(name)
			}
		}
		time.Local = time.UTC
	}
	testscript.Main(m, programs)
}

var programs = map[string]func(){
	"ledgerd": mainOrBehind, "ledgerd-next": nextRelease,
	// A separate program, as a user would make it.
	"ledgerd-plugin-hello": func() { sdk.Main(hello()) },
	"hello-next":           func() { sdk.Main(helloNext()) },
	"sick":                 serveSick,
	"stage-1":              func() { sdk.Main(stage("1.0.0")) },
	"stage-2":              func() { sdk.Main(stage("2.0.0")) },
	"stage-3":              func() { sdk.Main(stage("3.0.0")) },
}

// run runs scripts, each with a separate home. They have four commands besides those of testscript: exits, here,
// steady, sqlite.
func run(t *testing.T, p testscript.Params, setUp func(*testscript.Env) error) {
	p.UpdateScripts = *update
	p.Setup = func(e *testscript.Env) error {
		e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
		e.Setenv("XDG_DATA_HOME", filepath.Join(e.WorkDir, "data"))
		e.Setenv("TZ", "UTC")
		e.Setenv("NO_COLOR", "1")
		e.Setenv("TMPDIR", os.TempDir()) // sockets need a short path
		data := fmt.Appendf(nil, "data_dir = %q\n", filepath.Join(e.WorkDir, "data", "ledgerd"))
		return errors.Join(os.WriteFile(filepath.Join(e.WorkDir, hereConfig), data, 0o600), setUp(e))
	}
	p.Cmds = map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "here": here, "steady": steady,
		"sqlite": executeSQLite}
	testscript.Run(t, p)
}

// exits runs a program as exec does, and checks its exit code: exits 3 ledgerd run …
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code program [args...]")
	}
	got, exit := 0, (*exec.ExitError)(nil)
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

// hereConfig is the config file of here; it names the folder with the data of a script.
const hereConfig = ".here.toml"

// ofEnvironment are the variables of ledgerd that scripts name.
var ofEnvironment = sync.OnceValue(func() (names []string) {
	files, _ := filepath.Glob("testdata/*/*.txtar")
	for _, file := range files {
		text, _ := os.ReadFile(file)
		names = append(names, regexp.MustCompile(`\bLEDGERD_[A-Z_]+`).FindAllString(string(text), -1)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
})

// here runs ledgerd in this process, and checks its exit code: here 0 ledgerd ls. Most commands take far less processor
// time than the start of a program; each is started as a program in some script. A line of here names no relative path,
// reads no stdin, waits for no signal and needs no config of the home. Where a script has set anything of ledgerd's, or
// the time zone, it starts a program.
func here(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 || args[1] != "ledgerd" {
		ts.Fatalf("usage: here code ledgerd args...")
	}
	for _, arg := range args[2:] {
		if _, err := os.Stat(ts.MkAbs(arg)); err == nil && arg != "" && !filepath.IsAbs(arg) {
			ts.Fatalf("%s is a file of the script, and only exec and exits run in its folder", arg)
		}
	}
	set := func(name string) bool { return ts.Getenv(name) != "" }
	if ts.Getenv("TZ") != "UTC" || slices.ContainsFunc(ofEnvironment(), set) {
		exits(ts, neg, args)
		return
	}
	ctx, stop := context.WithTimeout(context.Background(), patience) // a line that hangs shows the log of its script
	defer stop()
	got, stdout, stderr := inProcess(ctx, filepath.Join(ts.Getenv("WORK"), hereConfig), args[2:])
	fmt.Fprint(ts.Stdout(), stdout)
	fmt.Fprint(ts.Stderr(), stderr)
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

// executeSQLite executes a statement in a database: sqlite people.db 'DROP TABLE people'
func executeSQLite(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: sqlite file statement")
	}
	db, err := sql.Open("sqlite", ts.MkAbs(args[0]))
	if err == nil {
		_, err = db.Exec(args[1])
		err = errors.Join(err, db.Close())
	}
	ts.Check(err)
}

// steady replaces the parts of the last stdout that differ between runs, so that the rest can be compared: times,
// durations, rates, names of processes, ids, paths.
func steady(ts *testscript.TestScript, _ bool, _ []string) {
	text := ts.ReadFile("stdout")
	for _, r := range []struct{ pattern, with string }{
		{`"[0-9]{4}-[0-9-]+T[0-9:.]+Z"`, `"TIME"`},
		{`[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}`, `TIME`},
		{
			`("(seconds|per_second|ms|oldest_ready_s|per_second_1m|eta_s|work_ms_1h|heartbeat_age_s|clock_skew_ms|pid|id|slot|fence)": ?)-?[0-9.]+`, `${1}0`},
		{`[0-9]+\.[0-9] s\b`, `0.0 s`},
		{`\+[0-9a-f]{6}\b`, `+DIGEST`},
		{`[A-Za-z0-9.-]+/[0-9]+/[0-9a-f]{6}\b`, `AGENT`},
		{`"fingerprint": "[^"]+"`, `"fingerprint": "VERSION"`},
		{`"(sqlite|postgres|http)(ql)?:[^"]+"`, `"LEDGER"`},
		{regexp.QuoteMeta(ts.Getenv("WORK")), `$$WORK`},
	} {
		text = regexp.MustCompile(r.pattern).ReplaceAllString(text, r.with)
	}
	fmt.Fprint(ts.Stdout(), text)
}

var update = flag.Bool("update", false, "write the expected output anew")

// TestScripts runs the scripts that must work on any ledger: on SQLite, those that may differ also on Postgres, and a
// script of its own over HTTP.
func TestScripts(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		run(t, testscript.Params{Dir: "testdata/script"}, func(*testscript.Env) error { return nil })
	})
	t.Run("postgres", func(t *testing.T) {
		// ledger/storetest compares the stores, so a few scripts are enough.
		run(t, scriptsNamed("doctor", "lists"),
			func(e *testscript.Env) error {
				e.Setenv("LEDGERD_DB", pgtest.SchemaURL(e.T().(testing.TB)))
				return nil
			})
	})
	t.Run("http", func(t *testing.T) {
		run(t, testscript.Params{Dir: "testdata/http"},
			func(e *testscript.Env) error { return overHTTP(e, pgtest.SchemaURL(e.T().(testing.TB))) })
	})
}

func scriptsNamed(names ...string) testscript.Params {
	var p testscript.Params
	for _, name := range names {
		p.Files = append(p.Files, filepath.Join("testdata/script", name+".txtar"))
	}
	return p
}

// TestScriptsOfOneBox runs scripts that do not depend on the database: words of commands, plugins, files, settings.
func TestScriptsOfOneBox(t *testing.T) {
	run(t, testscript.Params{Dir: "testdata/onebox"}, func(*testscript.Env) error { return nil })
}
