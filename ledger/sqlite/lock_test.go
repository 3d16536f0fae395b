package sqlite_test

import (
	"context"
	"io/fs"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/pressly/goose/v3"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/locks"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/schema"
)

// A ledger made before there were locks gets their table when it is opened, and keeps what is in it.
func TestLocksAreAdded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	db := database(t, path)
	const name = "00001_ledger.sql"
	first, err := fs.ReadFile(schema.SQLite, "sqlite/"+name)
	if err != nil {
		t.Fatal(err)
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, fstest.MapFS{name: {Data: first}}, goose.WithTableName(schema.Table), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	run(t, db, `INSERT INTO ledger_kinds (kind) VALUES ('k')`, `INSERT INTO ledger_items (kind, key, slot, created_at) VALUES ('k', 'x', 0, 1)`,
		`INSERT INTO ledger_backlog (item_id, kind, slot, state, due_at) VALUES (1, 'k', 0, 1, 1)`)
	l := ledger.New(mustOpen(t, path, sqlite.Options{MustExist: true}), ledger.Options{})
	if it, err := l.Find(t.Context(), "k", "", "x"); it.State != ledger.StateReady || err != nil {
		t.Errorf("%+v, %v", it, err)
	}
	if err := locks.New(l).Do(t.Context(), "l", locks.Options{}, func(context.Context, *locks.Lock) error { return nil }); err != nil {
		t.Error(err)
	}
}
