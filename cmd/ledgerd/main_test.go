package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/sdk"
)

// TestMain lets the test binary be ledgerd: scripts run it as a process of its own, and it
// starts itself as the process of a bundled plugin, as the real one does.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"ledgerd": main, "exits": exits, "steady": steady, "holder": holder, "peak": peak,
		// A program beside ledgerd, as somebody else would make it.
		"ledgerd-plugin-hello": func() { sdk.Main(hello()) },
		"hello-next":           func() { sdk.Main(helloNext()) },
		"hostile":              serveHostile,
		"sick":                 serveSick,
		"stage-1":              func() { sdk.Main(stage("1.0.0")) },
		"stage-2":              func() { sdk.Main(stage("2.0.0")) },
		"stage-3":              func() { sdk.Main(stage("3.0.0")) },
	})
}

// steady is the program of scripts that replaces what differs from run to run, so that the rest
// can be compared as it is: times, durations, rates, names of processes, ids, paths.
func steady() {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, r := range []struct{ pattern, with string }{
		{`"[0-9]{4}-[0-9-]+T[0-9:.]+Z"`, `"TIME"`},
		{`[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}`, `TIME`},
		{`("(seconds|per_second|ms|oldest_ready_s|per_second_1m|eta_s|work_ms_1h|heartbeat_age_s|clock_skew_ms|pid|id|slot|fence)": ?)-?[0-9.]+`, `${1}0`},
		{`[0-9]+\.[0-9] s\b`, `0.0 s`},
		{`\+[0-9a-f]{6}\b`, `+DIGEST`},
		{`[A-Za-z0-9.-]+/[0-9]+/[0-9a-f]{6}\b`, `AGENT`},
		{`"fingerprint": "[^"]+"`, `"fingerprint": "VERSION"`},
		{`"(sqlite|postgres)(ql)?:[^"]+"`, `"LEDGER"`},
		{regexp.QuoteMeta(os.Getenv("WORK")), `$$WORK`},
	} {
		text = regexp.MustCompile(r.pattern).ReplaceAll(text, []byte(r.with))
	}
	os.Stdout.Write(text)
}

// exits is the program of scripts that runs a command and asserts its exit code: exits 3 ledgerd run …
func exits() {
	cmd := exec.Command(os.Args[2], os.Args[3:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	_ = cmd.Run() // the code says what is asked
	if got := strconv.Itoa(cmd.ProcessState.ExitCode()); got != os.Args[1] {
		fmt.Fprintf(os.Stderr, "exit code %s, want %s\n", got, os.Args[1])
		os.Exit(1)
	}
}

// setUp gives a script a home of its own.
func setUp(e *testscript.Env) {
	e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
	e.Setenv("XDG_DATA_HOME", filepath.Join(e.WorkDir, "data"))
	e.Setenv("TZ", "UTC")
	e.Setenv("NO_COLOR", "1")
	e.Setenv("TMPDIR", os.TempDir()) // sockets need a short path
}

var update = flag.Bool("update", false, "write the expected output anew")

// TestScripts runs what must hold on any ledger, on both databases.
func TestScripts(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		testscript.Run(t, testscript.Params{Dir: "testdata/script", UpdateScripts: *update, Setup: func(e *testscript.Env) error {
			setUp(e)
			return nil
		}})
	})
	t.Run("postgres", func(t *testing.T) {
		testscript.Run(t, testscript.Params{Dir: "testdata/script", Setup: func(e *testscript.Env) error {
			setUp(e)
			e.Setenv("LEDGERD_DB", pgtest.SchemaURL(e.T().(testing.TB)))
			return nil
		}})
	})
}

// TestScriptsOfOneBox runs what is about ledgers in files, and about no ledger at all.
func TestScriptsOfOneBox(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/onebox", UpdateScripts: *update, Setup: func(e *testscript.Env) error {
		setUp(e)
		return nil
	}})
}
