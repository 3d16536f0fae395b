package sqlite_test

import (
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/pressly/goose/v3"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/schema"
)

// A ledger of an older schema, with work in it, goes on as it is.
func TestUpgrade(t *testing.T) {
	for _, newest := range []string{"00001_ledger.sql", "00005_tallies.sql"} {
		t.Run(newest, func(t *testing.T) { upgrade(t, newest) })
	}
}

func upgrade(t *testing.T, newest string) {
	path := newPath(t)
	old := fstest.MapFS{}
	files, err := fs.ReadDir(schema.SQLite, "sqlite")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Name() <= newest {
			text, err := fs.ReadFile(schema.SQLite, "sqlite/"+f.Name())
			if err != nil {
				t.Fatal(err)
			}
			old[f.Name()] = &fstest.MapFile{Data: text}
		}
	}
	db := database(t, path)
	p, err := goose.NewProvider(goose.DialectSQLite3, db, old, goose.WithTableName(schema.Table), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	run(t, db, "INSERT INTO ledger_kinds (kind) VALUES ('k')",
		"INSERT INTO ledger_items (id, kind, key, slot, created_at) VALUES (1, 'k', 'a', 663, 1), (2, 'k', 'b', 547, 1)",
		"INSERT INTO ledger_backlog (item_id, kind, state, slot, due_at) VALUES (1, 'k', 1, 663, 1)",
		"INSERT INTO ledger_backlog (item_id, kind, state, slot, due_at, attempt, locked_by, lock_id, leased_at, expires_at) VALUES (2, 'k', 2, 547, 1, 1, 'x', randomblob(16), 1, 1)")
	l := ledger.New(mustOpen(t, path, sqlite.Options{}), ledger.Options{})
	if n, err := l.Expire(t.Context(), 10); n != 1 || err != nil {
		t.Fatalf("%d expired, %v", n, err)
	}
	if _, err := l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "c", Resources: []string{"r"}}); err != nil {
		t.Fatal(err)
	}
	if ls, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: 10}); len(ls) != 3 || err != nil {
		t.Fatalf("%d leases, %v", len(ls), err)
	}
	if err := l.SetKind(t.Context(), "a", ledger.Kind{Name: "limited", Limits: ledger.Limits{MaxRunning: 1}}); err != nil {
		t.Fatal(err)
	}
	for v, err := range l.Verify(t.Context()) {
		t.Error(v, err)
	}
}
