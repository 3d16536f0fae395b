package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ledgerd/ledgerd/internal/failure"
)

// behindEnv has the database behind the HTTP API of LEDGERD_DB, for the commands db.
const behindEnv = "LEDGERD_TEST_BEHIND"

// mainOrBehind is ledgerd. In a script over HTTP, it gives the database to the commands db.
func mainOrBehind() {
	if behind := os.Getenv(behindEnv); behind != "" && len(os.Args) > 1 && os.Args[1] == "db" {
		os.Setenv("LEDGERD_DB", behind)
	}
	main()
}

// overHTTP serves a ledger to a script. The script reaches it only over HTTP.
func overHTTP(e *testscript.Env, db string) error {
	t := e.T().(testing.TB)
	m := &machine{t: t, program: filepath.Join(t.TempDir(), "ledgerd"), db: db,
		env: append(os.Environ(), "LEDGERD_DB="+db, "HOME="+t.TempDir(), "XDG_DATA_HOME="+t.TempDir())}
	link(t, m.program)
	m.run(failure.ExitOK, "db", "migrate")
	_, base := m.api("--auth", "none")
	e.Setenv("LEDGERD_DB", strings.TrimSuffix(base, "/api/v1"))
	e.Setenv(behindEnv, db)
	return nil
}
