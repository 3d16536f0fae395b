package postgres_test

import (
	"database/sql"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/pressly/goose/v3"

	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/schema"
)

// A ledger of an older schema, with work in it, is refused until it is brought up to date, and goes
// on as it is.
func TestUpgrade(t *testing.T) {
	for _, newest := range []string{"00001_ledger.sql", "00005_tallies.sql"} {
		t.Run(newest, func(t *testing.T) { upgrade(t, newest) })
	}
}

func upgrade(t *testing.T, newest string) {
	target := pgtest.Database(t)
	old := fstest.MapFS{}
	files, err := fs.ReadDir(schema.Postgres, "postgres")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Name() <= newest {
			text, err := fs.ReadFile(schema.Postgres, "postgres/"+f.Name())
			if err != nil {
				t.Fatal(err)
			}
			old[f.Name()] = &fstest.MapFile{Data: text}
		}
	}
	db, err := sql.Open("pgx", target)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	p, err := goose.NewProvider(goose.DialectPostgres, db, old, goose.WithTableName(schema.Table), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{"INSERT INTO ledger_kinds (kind) VALUES ('k')",
		"INSERT INTO ledger_items (kind, key, slot, created_at) VALUES ('k', 'a', 663, now()), ('k', 'b', 547, now())",
		"INSERT INTO ledger_backlog (item_id, kind, state, slot, due_at) VALUES (1, 'k', 1, 663, now())",
		"INSERT INTO ledger_backlog (item_id, kind, state, slot, due_at, attempt, locked_by, lock_id, leased_at, expires_at) VALUES (2, 'k', 2, 547, now(), 1, 'x', gen_random_uuid(), now(), now())"} {
		execute(t, target, statement)
	}
	if _, err := postgres.Connect(t.Context(), target, postgres.Options{}); err == nil {
		t.Fatal("a ledger that lacks a migration was opened")
	}
	s, err := postgres.Connect(t.Context(), target, postgres.Options{Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	l := ledger.New(s, ledger.Options{})
	defer l.Close()
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
