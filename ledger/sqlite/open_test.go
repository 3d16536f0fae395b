package sqlite_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/childtest"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/schema"
)

// database opens the file a second time, with the driver that the ledger uses.
func database(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := openDatabase(path)
	must.OK(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func openDatabase(path string) (*sql.DB, error) {
	return sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)")
}

func run(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func value[T any](t testing.TB, db *sql.DB, query string) (v T) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

func TestOpenCreates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "folder", "a b?#%.db")
	mustOpen(t, path, sqlite.Options{})
	for p, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700 | os.ModeDir,
		filepath.Dir(filepath.Dir(path)): 0o700 | os.ModeDir} {
		info, err := os.Stat(p)
		must.OK(t, err)
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", p, info.Mode(), want)
		}
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	must.OK(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if diff := cmp.Diff([]string{"a b?#%.db", "a b?#%.db-shm", "a b?#%.db-wal"}, names); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	have, want, err := sqlite.Status(t.Context(), path)
	if err != nil || have != schema.Version || want != schema.Version {
		t.Errorf("status %d, %d, %v", have, want, err)
	}
}

func TestOpenRelativeAndLinked(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	must.OK(t, os.Mkdir("real", 0o700))
	l := ledger.New(mustOpen(t, "real/ledger.db", sqlite.Options{}), ledger.Options{})
	must.OK(t, os.Symlink("real/ledger.db", "link.db"))
	linked := ledger.New(mustOpen(t, "link.db", sqlite.Options{MustExist: true}), ledger.Options{})
	must.Do(t)(l.Add(t.Context(), numbered(1)...))
	if n, err := linked.Count(t.Context(), ledger.Filter{}); n != 1 || err != nil {
		t.Errorf("through the link: %d items, %v", n, err)
	}
	must.OK(t, os.Symlink("far.db", "real/near.db"))
	must.OK(t, os.Symlink("real/near.db", "first.db"))
	mustOpen(t, "first.db", sqlite.Options{}) // the link was there before the file
	if info, err := os.Lstat("real/far.db"); err != nil || !info.Mode().IsRegular() {
		t.Errorf("behind two links: %v", err)
	}
}

func TestMustExist(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "folder", "ledger.db")
	_, err := sqlite.Open(t.Context(), missing, sqlite.Options{MustExist: true})
	if !errors.Is(err, ledger.ErrNoLedger) || !strings.Contains(err.Error(), missing) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(missing)); !os.IsNotExist(err) {
		t.Error("the folder was made")
	}
	if have, want, err := sqlite.Status(t.Context(), missing); have != 0 || want != schema.Version || err != nil {
		t.Errorf("status of a missing file: %d, %d, %v", have, want, err)
	}
	app := newPath(t)
	run(t, database(t, app), "CREATE TABLE items (x)")
	before := contents(t, app)
	if _, err = sqlite.Open(t.Context(), app, sqlite.Options{MustExist: true}); !errors.Is(err, ledger.ErrNoLedger) {
		t.Errorf("a file of an application: %v", err)
	}
	if !bytes.Equal(before, contents(t, app)) {
		t.Error("the application's file was touched")
	}
}

func contents(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	must.OK(t, err)
	return b
}

// An application's file may have tables with the names of a ledger's tables without their prefix.
func TestOpenInsideAnApplication(t *testing.T) {
	path := newPath(t)
	db := database(t, path)
	run(t, db, "CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT)", "CREATE TABLE locks (x)",
		"CREATE TABLE goose_db_version (version_id INTEGER, is_applied)",
		"INSERT INTO items VALUES (7, 'theirs')", "INSERT INTO goose_db_version VALUES (42, 1)")
	l := ledger.New(mustOpen(t, path, sqlite.Options{}), ledger.Options{})
	must.Do(t)(l.Add(t.Context(), numbered(3)...))
	if got := value[string](t, db, "SELECT group_concat(id || name) FROM items"); got != "7theirs" {
		t.Errorf("their items are %s", got)
	}
	if got := value[int](t, db, "SELECT max(version_id) FROM goose_db_version"); got != 42 {
		t.Errorf("their schema has version %d", got)
	}
	if got := value[int](t, db, "SELECT count(*) FROM ledger_items"); got != 3 {
		t.Errorf("the ledger has %d items", got)
	}
}

func TestRefusedUntouched(t *testing.T) {
	edited := func(statements ...string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
			must.OK(t, err)
			s.Close()
			db := database(t, path)
			run(t, db, statements...)
			db.Close()
		}
	}
	text := func(s string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			must.OK(t, os.WriteFile(path, []byte(s), 0o600))
		}
	}
	for name, tt := range map[string]struct {
		prepare func(t *testing.T, path string)
		message string
	}{
		"short text": {text("hello\n"), "is not a ledger"},
		"long text":  {text(strings.Repeat("id,name,email\n", 10_000)), "is not a ledger"},
		"newer": {edited("INSERT INTO ledger_migrations (version_id, is_applied) VALUES (99, 1)",
			"UPDATE ledger_meta SET v = '98' WHERE k = 'compatible_from'"), fmt.Sprintf("has schema 99, which programs that "+
			"know schema 98 or later may use, and this one knows %d; upgrade ledgerd", schema.Version)},
		"other tables": {func(t *testing.T, path string) {
			db := database(t, path)
			run(t, db, "CREATE TABLE ledger_items (account, amount)")
			db.Close()
		}, "another program's"},
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			tt.prepare(t, path)
			before := contents(t, path)
			for _, o := range []sqlite.Options{{}, {MustExist: true}} {
				_, err := sqlite.Open(t.Context(), path, o)
				if !errors.Is(err, ledger.ErrSchema) || !strings.Contains(err.Error()+"; "+ledger.Hint(err), tt.message) ||
					!strings.Contains(err.Error(), path) {
					t.Errorf("%+v: %v", o, err)
				}
			}
			if _, _, err := sqlite.Status(t.Context(), path); !errors.Is(err, ledger.ErrSchema) {
				t.Errorf("status: %v", err)
			}
			if !bytes.Equal(before, contents(t, path)) {
				t.Error("the file was touched")
			}
		})
	}
}

// A newer ledger that allows this program is used.
func TestNewerButCompatible(t *testing.T) {
	path := newPath(t)
	mustOpen(t, path, sqlite.Options{}).Close()
	run(t, database(t, path), "INSERT INTO ledger_migrations (version_id, is_applied) VALUES (99, 1)")
	s := mustOpen(t, path, sqlite.Options{})
	if _, err := ledger.New(s, ledger.Options{}).Add(t.Context(), numbered(1)...); err != nil {
		t.Error(err)
	}
	if have, _, err := sqlite.Status(t.Context(), path); have != 99 || err != nil {
		t.Errorf("status %d, %v", have, err)
	}
	run(t, database(t, path), "UPDATE ledger_meta SET v = '98' WHERE k = 'compatible_from'")
	if now, err := s.Schema(t.Context()); now.Have != 99 || now.Compatible != 98 || err != nil ||
		!errors.Is(now.Fits(), ledger.ErrSchema) {
		t.Errorf("of a store that is open: %+v, %v", now, err)
	}
}

func TestBadPaths(t *testing.T) {
	for _, path := range []string{"", t.TempDir(), "/dev/null"} {
		if _, err := sqlite.Open(t.Context(), path, sqlite.Options{}); !errors.Is(err, ledger.ErrInvalid) {
			t.Errorf("%q: %v", path, err)
		}
	}
}

func TestDamaged(t *testing.T) {
	l, path := newLedger(t)
	must.Do(t)(l.Add(t.Context(), numbered(5000)...))
	must.OK(t, l.Close())
	b := contents(t, path)
	for i := 8192; i < len(b)-4096; i++ {
		b[i] = 0x5a
	}
	must.OK(t, os.WriteFile(path, b, 0o600))
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err == nil {
		defer s.Close()
		_, err = s.Count(t.Context(), ledger.Filter{Kinds: []string{"k"}})
	}
	if err == nil || !strings.Contains(err.Error(), "is damaged") || errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

func init() {
	childtest.Runs["open"] = func(ctx context.Context, args []string) error {
		for paths := bufio.NewScanner(os.Stdin); paths.Scan(); {
			s, err := sqlite.Open(ctx, paths.Text(), sqlite.Options{})
			if err == nil {
				err = s.Close()
			}
			fmt.Println(err)
		}
		return nil
	}
	childtest.Runs["denied"] = func(ctx context.Context, args []string) error {
		_, err := sqlite.Open(ctx, args[0], sqlite.Options{})
		if !errors.Is(err, ledger.ErrDenied) || !strings.Contains(err.Error(), args[1]) {
			return fmt.Errorf("not refused: %w", err)
		}
		return nil
	}
}

// Three processes that open a file at once all succeed, with a new file and with a file that they have just closed.
func TestOpenAtOnce(t *testing.T) {
	var all []*childtest.Child
	for range 3 {
		all = append(all, childtest.Start(t, "open"))
	}
	path := ""
	for round := range 40 {
		if round%2 == 0 {
			path = newPath(t)
		}
		for _, c := range all {
			must.Do(t)(fmt.Fprintln(c.In, path))
		}
		for _, c := range all {
			c.Expect(t, "<nil>")
		}
		if _, err := os.Stat(path + ".migrate"); !os.IsNotExist(err) {
			t.Errorf("the lock file stays: %v", err)
		}
		if got := value[string](t, database(t, path), "PRAGMA integrity_check"); got != "ok" {
			t.Errorf("integrity: %s", got)
		}
	}
	for _, c := range all {
		c.In.Close()
		c.Done(t)
	}
}
