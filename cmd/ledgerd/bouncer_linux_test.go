package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
)

// Two workers behind PgBouncer, in both of its modes, drain the added items. Only migrating is done at the server
// itself.
func TestBehindPgBouncer(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"transaction", "session"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			testBehindPgBouncer(t, mode)
		})
	}
}

func testBehindPgBouncer(t *testing.T, mode string) {
	direct := pgtest.SchemaURL(t)
	m := newMachine(t, pgtest.BouncerIn(t, mode, direct))
	const items = 1000
	refused := m.start("db", "migrate")
	m.ends(refused, failure.ExitUsage, "migrate at the address of the server itself")
	m.run(failure.ExitOK, "db", "migrate", "--db", direct)
	m.run(failure.ExitOK, "add", "effect", "--from", list(t, items))
	query := filepath.Join(t.TempDir(), "q.sql") // of the ledger's own tables, by search_path
	must.OK(t, os.WriteFile(query, []byte(`SELECT 'again ' || key AS key FROM ledger_items LIMIT 10`), 0o600))
	m.run(failure.ExitOK, "add", "effect", "--from", query)
	work := []string{"work", "--drain", "--kind", "effect"}
	for _, p := range []*started{m.start(work...), m.start(work...)} {
		m.ends(p, failure.ExitOK)
	}
	if n := m.count("state:done"); n < items+10 {
		t.Errorf("%d items are done, want %d", n, items+10)
	}
	m.run(failure.ExitUnfinished, "run", "effect", "x", "--set", "how=permanent")
	m.run(failure.ExitOK, "retry", "x")
	m.run(failure.ExitOK, "cancel", "x")
	m.run(failure.ExitOK, "db", "verify")
	m.run(failure.ExitOK, "db", "copy", "--to", "sqlite:"+filepath.Join(t.TempDir(), "copy.db"))
}

// list writes a file with so many lines.
func list(t *testing.T, n int) string {
	t.Helper()
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, "item %d\n", i)
	}
	path := filepath.Join(t.TempDir(), "list")
	must.OK(t, os.WriteFile(path, []byte(lines.String()), 0o600))
	return path
}
