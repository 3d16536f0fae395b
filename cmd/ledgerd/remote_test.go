package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ledgerd/ledgerd/internal/failure"
)

// behindEnv has the database behind the HTTP API of LEDGERD_DB, for commands that need a database.
const behindEnv = "LEDGERD_TEST_BEHIND"

// needDatabase are commands of scripts that use the database directly.
var needDatabase = []string{"db", "doctor", "prune", "lock", "config"}

// mainOrBehind is ledgerd. In a script over HTTP, it gives the database to commands that need it.
func mainOrBehind() {
	if behind := os.Getenv(behindEnv); behind != "" && len(os.Args) > 1 && slices.Contains(needDatabase, os.Args[1]) {
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
