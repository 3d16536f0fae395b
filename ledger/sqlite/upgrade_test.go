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

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/act"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/ledger/storetest"
	"github.com/ledgerd/ledgerd/schema"
)

// A ledger of an older schema, with work in it, goes on as it is.
func TestUpgrade(t *testing.T) {
	storetest.Upgrade(t, func(t *testing.T, newest string) storetest.Older {
		path := newPath(t)
		db := database(t, path)
		storetest.Migrate(t, db, goose.DialectSQLite3, schema.SQLite, "sqlite", newest)
		return storetest.Older{
			Exec:   func(statement string) { run(t, db, statement) },
			Moment: func(m time.Time) string { return fmt.Sprint(m.UnixMicro()) },
			LockID: "randomblob(16)",
			Open: func() *ledger.Ledger {
				return ledger.New(mustOpen(t, path, sqlite.Options{MustExist: true}), ledger.Options{})
			},
		}
	})
}

// older is a ledger of an older schema, with one item if it is to have any.
func older(t testing.TB, path, newest string, item bool) {
	t.Helper()
	db := database(t, path)
	storetest.Migrate(t, db, goose.DialectSQLite3, schema.SQLite, "sqlite", newest)
	if item {
		run(t, db, "INSERT INTO ledger_kinds (kind) VALUES ('k')",
			"INSERT INTO ledger_items (kind, key, slot, created_at, payload) VALUES ('k', 'a', 1, 1, zeroblob(300000))")
	}
	if err := db.Close(); err != nil { // so that its log is gone, too
		t.Fatal(err)
	}
}

// version is the schema of a file, and files the names in its folder.
func version(t testing.TB, path string) (have int, files []string) {
	t.Helper()
	have, _, err := sqlite.Status(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		files = append(files, f.Name())
	}
	return have, files
}

// With NoMigrate an older ledger stays as it is, and nothing is left beside it.
func TestNoMigrate(t *testing.T) {
	path := newPath(t)
	older(t, path, "00014_leases.sql", true)
	_, err := sqlite.Open(t.Context(), path, sqlite.Options{MustExist: true, NoMigrate: true, Copy: true,
		Migrated: func(int, int, string) { t.Error("migrated") }})
	want := fmt.Sprintf("the ledger in %s has schema 14, this program needs %d", path, schema.Version)
	if e, ok := errors.AsType[*ledger.Error](err); !ok || !errors.Is(err, ledger.ErrSchema) || e.Message != want ||
		e.Act.Name != act.Migrate {
		t.Errorf("%v, want %s", err, want)
	}
	if have, files := version(t, path); have != 14 || len(files) != 1 {
		t.Errorf("schema %d, files %q", have, files)
	}
	if err := sqlite.Backup(t.Context(), path, path+".b"); err != nil {
		t.Error(err)
	}
	if have, files := version(t, path+".b"); have != 14 || len(files) != 2 {
		t.Errorf("a backup has schema %d; files %q", have, files)
	}
	fresh := filepath.Join(t.TempDir(), "new.db") // a new ledger is made all the same
	mustOpen(t, fresh, sqlite.Options{NoMigrate: true})
}

// A ledger is copied before it is migrated, unless there is nothing in it. No copy takes the place of another.
func TestCopyBeforeMigration(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ledger.db")
	for _, c := range []struct {
		item bool
		copy string
	}{{false, ""}, {true, path + ".schema-14.bak"}, {true, path + ".schema-14.2.bak"}} {
		for _, end := range []string{"", "-wal", "-shm"} {
			if err := os.Remove(path + end); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
		older(t, path, "00014_leases.sql", c.item)
		var told []any
		s, err := sqlite.Open(t.Context(), path, sqlite.Options{MustExist: true, Copy: true,
			Migrated: func(from, to int, copied string) { told = append(told, from, to, copied) }})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]any{14, schema.Version, c.copy}, told); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
		if have, _ := version(t, path); have != schema.Version {
			t.Errorf("schema %d", have)
		}
		if c.copy == "" {
			continue
		}
		if have, _ := version(t, c.copy); have != 14 {
			t.Errorf("the copy has schema %d", have)
		}
		if n := value[int](t, database(t, c.copy), "SELECT count(*) FROM ledger_items"); n != 1 {
			t.Errorf("the copy has %d items", n)
		}
	}
}

// A migration that fails keeps the copy if a part of it was committed, and tells where it is; else it leaves nothing.
func TestMigrationFails(t *testing.T) {
	for newest, want := range map[string]struct {
		schema int
		hint   string
		copied bool
	}{
		"00015_figures.sql": {15, "nothing was changed", false},
		"00014_leases.sql":  {15, "the same command goes on with it; as it was before, it is in ", true},
	} {
		path := newPath(t)
		older(t, path, newest, true)
		db := database(t, path)
		run(t, db, "ALTER TABLE ledger_items ADD COLUMN trace TEXT") // which schema 16 adds
		db.Close()
		_, err := sqlite.Open(t.Context(), path, sqlite.Options{MustExist: true, Copy: true,
			Migrated: func(int, int, string) { t.Error("migrated") }})
		e, ok := errors.AsType[*ledger.Error](err)
		if !ok || !strings.Contains(e.Message, " was not migrated: a migration failed: ") || !strings.HasPrefix(e.Hint, want.hint) {
			t.Errorf("%s: %+v", newest, err)
		}
		have, files := version(t, path)
		if have != want.schema || slices.Contains(files, "ledger.db.schema-14.bak") != want.copied ||
			slices.Contains(files, "ledger.db.schema-15.bak") {
			t.Errorf("%s: schema %d, files %q", newest, have, files)
		}
	}
}
