package main

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ledgerd/ledgerd/internal/pgtest"
)

// TestMain lets the test binary be ledgerd: scripts run it as a process of its own, and it
// starts itself as the process of a bundled plugin, as the real one does.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"ledgerd": main, "exits": exits})
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

// TestScripts runs what must hold on any ledger, on both databases.
func TestScripts(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		testscript.Run(t, testscript.Params{Dir: "testdata/script", Setup: func(e *testscript.Env) error {
			setUp(e)
			return nil
		}})
	})
	t.Run("postgres", func(t *testing.T) {
		testscript.Run(t, testscript.Params{Dir: "testdata/script", Setup: func(e *testscript.Env) error {
			setUp(e)
			e.Setenv("LEDGERD_DB", postgresURL(e.T().(testing.TB)))
			return nil
		}})
	})
}

// TestScriptsOfOneBox runs what is about ledgers in files, and about no ledger at all.
func TestScriptsOfOneBox(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/onebox", Setup: func(e *testscript.Env) error {
		setUp(e)
		return nil
	}})
}

// postgresURL is the address of an empty schema.
func postgresURL(t testing.TB) string {
	u, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("search_path", pgtest.Schema(t))
	u.RawQuery = q.Encode()
	return u.String()
}
