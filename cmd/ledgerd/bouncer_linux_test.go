package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/pgtest"
)

// Behind PgBouncer in transaction mode two workers drain what was added; only migrating is done at
// the server itself.
func TestBehindPgBouncer(t *testing.T) {
	t.Parallel()
	direct := pgtest.SchemaURL(t)
	m := newMachine(t, pgtest.Bouncer(t, direct))
	const items = 1000
	refused := m.start("db", "migrate")
	if code := m.exit(refused); code != exitUsage || !strings.Contains(refused.stderr.String(), "migrate at the address of the server itself") {
		t.Errorf("migrating behind a pooler: exit %d\n%s", code, refused.stderr.String())
	}
	m.run(exitOK, "db", "migrate", "--db", direct)
	m.run(exitOK, "add", "effect", "--from", list(t, items))
	work := []string{"work", "--drain", "--kind", "effect"}
	for _, p := range []*started{m.start(work...), m.start(work...)} {
		if code := m.exit(p); code != exitOK {
			t.Errorf("exit %d\n%s", code, p.stderr.String())
		}
	}
	if n := strings.Count(m.run(exitOK, "ls", "--state", "done", "-o", "jsonl", "--limit", "2000"), "\n"); n < items {
		t.Errorf("%d items are done, want %d", n, items)
	}
	m.run(exitUnfinished, "run", "effect", "x", "--set", "how=permanent")
	m.run(exitOK, "retry", "x")
	m.run(exitOK, "cancel", "x")
	m.run(exitOK, "db", "verify")
	m.run(exitOK, "db", "copy", "--to", "sqlite:"+filepath.Join(t.TempDir(), "copy.db"))
}
