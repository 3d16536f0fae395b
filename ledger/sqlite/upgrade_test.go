package sqlite_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pressly/goose/v3"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/schematest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/act"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/ledger/storetest"
	"github.com/ledgerd/ledgerd/schema"
)

// A ledger of an older schema with unfinished items is migrated, and its work continues.
func TestUpgrade(t *testing.T) {
	path := newPath(t)
	db := database(t, path)
	schematest.Migrate(t, db, goose.DialectSQLite3, schema.SQLite, "sqlite", oldest)
	storetest.Upgrade(t, storetest.Older{
		Exec:   func(statement string) { run(t, db, statement) },
		Moment: func(m time.Time) string { return fmt.Sprint(m.UnixMicro()) },
		State:  "state",
		Open: func() *ledger.Ledger {
			return ledger.New(mustOpen(t, path, sqlite.Options{MustExist: true}), ledger.Options{})
		},
	})
}

// A ledger of a build before the first release is refused, and is not changed.
func TestUnreleased(t *testing.T) {
	path := newPath(t)
	older(t, path, true)
	run(t, database(t, path), fmt.Sprintf("UPDATE ledger_migrations SET version_id = %d WHERE version_id = %d",
		schema.Oldest-1, schema.Oldest))
	_, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	want := fmt.Sprintf("the ledger in %s has schema %d, of a build before the first release; this program can use schema "+
		"%d or later", path, schema.Oldest-1, schema.Oldest)
	if e, ok := errors.AsType[*ledger.Error](err); !ok || !errors.Is(err, ledger.ErrSchema) || e.Message != want ||
		!strings.Contains(e.Hint, "add them to a new ledger") {
		t.Errorf("%v, want %s", err, want)
	}
}

// oldest is the name of the first migration.
var oldest = fmt.Sprintf("%05d_ledger.sql", schema.Oldest)

// older makes a ledger of an older schema, with one item if item is set.
func older(t testing.TB, path string, item bool) {
	t.Helper()
	db := database(t, path)
	schematest.Migrate(t, db, goose.DialectSQLite3, schema.SQLite, "sqlite", oldest)
	if item {
		run(t, db, "INSERT INTO ledger_kinds (kind) VALUES ('k')",
			"INSERT INTO ledger_items (kind, key, slot, created_at, payload) VALUES ('k', 'a', 1, 1, zeroblob(300000))")
	}
	if err := db.Close(); err != nil { // so that its log is removed, too
		t.Fatal(err)
	}
}

// version returns the schema of a file, and as files the names in its folder.
func version(t testing.TB, path string) (have int, files []string) {
	t.Helper()
	have, _, err := sqlite.Status(t.Context(), path)
	must.OK(t, err)
	all, err := os.ReadDir(filepath.Dir(path))
	must.OK(t, err)
	for _, f := range all {
		files = append(files, f.Name())
	}
	return have, files
}

// With NoMigrate an older ledger is not changed, and no file is left beside it.
func TestNoMigrate(t *testing.T) {
	path := newPath(t)
	older(t, path, true)
	_, err := sqlite.Open(t.Context(), path, sqlite.Options{MustExist: true, NoMigrate: true, Copy: true,
		Migrated: func(int, int, string) { t.Error("migrated") }})
	want := fmt.Sprintf("the ledger in %s has schema %d, this program needs %d", path, schema.Oldest,
		schema.Version)
	if e, ok := errors.AsType[*ledger.Error](err); !ok || !errors.Is(err, ledger.ErrSchema) || e.Message != want ||
		e.Act.Name != act.Migrate {
		t.Errorf("%v, want %s", err, want)
	}
	if have, files := version(t, path); have != schema.Oldest || len(files) != 1 {
		t.Errorf("schema %d, files %q", have, files)
	}
	must.OK(t, sqlite.Backup(t.Context(), path, path+".b"))
	if have, files := version(t, path+".b"); have != schema.Oldest || len(files) != 2 {
		t.Errorf("a backup has schema %d; files %q", have, files)
	}
	fresh := filepath.Join(t.TempDir(), "new.db") // a new ledger is made in any case
	mustOpen(t, fresh, sqlite.Options{NoMigrate: true})
}

// A ledger that cannot be copied is not migrated, and no file is left beside it.
func TestNoCopyNoMigration(t *testing.T) {
	path := filepath.Join(t.TempDir(), strings.Repeat("l", 240)) // the name of a copy would be longer than 255 bytes
	older(t, path, true)
	_, err := sqlite.Open(t.Context(), path, sqlite.Options{MustExist: true, Copy: true})
	if e, ok := errors.AsType[*ledger.Error](err); !ok || e.Hint != "nothing was changed" ||
		!strings.Contains(e.Message, "was not migrated: no copy of it could be written: ") {
		t.Errorf("%v", err)
	}
	if have, files := version(t, path); have != schema.Oldest || len(files) != 1 {
		t.Errorf("schema %d, files %q", have, files)
	}
}

// A ledger is copied before it is migrated, unless it is empty. No copy replaces another one.
func TestCopyBeforeMigration(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ledger.db")
	for _, c := range []struct {
		item bool
		copy string
	}{{false, ""}, {true, path + ".schema-17.bak"}, {true, path + ".schema-17.2.bak"}} {
		for _, end := range []string{"", "-wal", "-shm"} {
			if err := os.Remove(path + end); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
		older(t, path, c.item)
		var told []any
		s, err := sqlite.Open(t.Context(), path, sqlite.Options{MustExist: true, Copy: true,
			Migrated: func(from, to int, copied string) { told = append(told, from, to, copied) }})
		must.OK(t, err)
		must.OK(t, s.Close())
		if diff := cmp.Diff([]any{schema.Oldest, schema.Version, c.copy}, told); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
		if have, _ := version(t, path); have != schema.Version {
			t.Errorf("schema %d", have)
		}
		if c.copy == "" {
			continue
		}
		if have, _ := version(t, c.copy); have != schema.Oldest {
			t.Errorf("the copy has schema %d", have)
		}
		if n := value[int](t, database(t, c.copy), "SELECT count(*) FROM ledger_items"); n != 1 {
			t.Errorf("the copy has %d items", n)
		}
	}
}

// A failed migration leaves nothing, unless a part of it was committed.
func TestMigrationFails(t *testing.T) {
	path := newPath(t)
	older(t, path, true)
	run(t, database(t, path), "ALTER TABLE ledger_items ADD COLUMN trace TEXT") // schema 18 adds it
	_, err := sqlite.Open(t.Context(), path, sqlite.Options{MustExist: true, Copy: true,
		Migrated: func(int, int, string) { t.Error("migrated") }})
	e, ok := errors.AsType[*ledger.Error](err)
	if !ok || !strings.Contains(e.Message, " was not migrated: a migration failed: ") || e.Hint != "nothing was changed" {
		t.Errorf("%+v", err)
	}
	if have, files := version(t, path); have != schema.Oldest || slices.ContainsFunc(files, func(name string) bool {
		return strings.HasSuffix(name, ".bak")
	}) {
		t.Errorf("schema %d, files %q", have, files)
	}
	left := sqlite.WhatIsLeft(t, path, schema.Oldest-1, "copy.bak")
	if left != "the same command goes on with it; as it was before, it is in copy.bak" {
		t.Error(left)
	}
}
