package dburl

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/internal/query"
	"github.com/ledgerd/ledgerd/ledger/finding"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/schema"
)

// sqliteFile is a ledger in an SQLite file.
type sqliteFile struct{ path string }

// File is the ledger in the SQLite file with this absolute path.
func File(path string) Database { return sqliteFile{path} }

func (d sqliteFile) String() string { return "sqlite:" + d.path }

func (d sqliteFile) Brief() string { return ShortPath(d.path) }

// sqlitePath is the path in the URL of an SQLite file: sqlite:PATH or sqlite://PATH.
func sqlitePath(url string) (path string, ok bool) {
	rest, ok := strings.CutPrefix(url, "sqlite:")
	path = strings.TrimPrefix(rest, "//")
	return path, ok && path != ""
}

// absolute makes a path absolute. It expands ~/, because a shell does not do so after a colon. A relative path is in
// the folder; "" is the working directory.
func absolute(path, folder string) (string, error) {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		home, err := os.UserHomeDir()
		return filepath.Join(home, rest), err
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(folder, path)
	}
	return filepath.Abs(path)
}

// ShortPath is a path with ~ for the home directory.
func ShortPath(path string) string {
	if home, err := os.UserHomeDir(); err == nil {
		if rel, err := filepath.Rel(home, path); err == nil && !strings.HasPrefix(rel, "..") {
			return filepath.Join("~", rel)
		}
	}
	return path
}

func (d sqliteFile) Open(ctx context.Context, o Options) (Store, error) {
	if o.Make {
		if err := makeFolder(filepath.Dir(d.path)); err != nil {
			return nil, err
		}
	}
	store, err := sqlite.Open(ctx, d.path, sqlite.Options{MustExist: !o.Make, NoMigrate: o.Migrated == nil, Copy: true,
		Migrated: func(from, to int, copied string) { o.Migrated(Migration{from, to, copied}) }})
	if err != nil {
		return nil, err
	}
	return store, nil
}

// makeFolder makes the folder of a new ledger; other users may not read it.
func makeFolder(folder string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		if cause := errors.Unwrap(err); cause != nil {
			err = cause
		}
		return &FolderError{Folder: folder, Err: err}
	}
	return nil
}

func (d sqliteFile) Status(ctx context.Context) (have, known int, err error) {
	return sqlite.Status(ctx, d.path)
}

// Migrate opens the ledger: that migrates it.
func (d sqliteFile) Migrate(ctx context.Context) (m Migration, err error) {
	if m.From, m.To, err = d.Status(ctx); err != nil {
		return m, err
	}
	store, err := d.Open(ctx, Options{Make: true, Migrated: func(done Migration) { m = done }})
	if err != nil {
		return m, err
	}
	return m, store.Close()
}

func (d sqliteFile) Examine(ctx context.Context) ([]finding.Finding, bool) {
	return sqlite.Examine(ctx, d.path)
}

func (d sqliteFile) Integrity(ctx context.Context) finding.Finding {
	return sqlite.Integrity(ctx, d.path)
}

func (d sqliteFile) Backup(ctx context.Context, path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	return sqlite.Backup(ctx, d.path, path)
}

func (d sqliteFile) Restore(ctx context.Context, from string, r RestoreHooks) (before string, err error) {
	return sqlite.Restore(ctx, from, d.path, sqlite.RestoreHooks{Replace: r.Replace,
		Fill: func(s *sqlite.Store, newest time.Time) error { return r.Fill(s, newest) }})
}

func (d sqliteFile) Query(ctx context.Context, file, text string) (*query.Query, error) {
	return query.SQLite(ctx, d.path, file, text)
}

func (d sqliteFile) Grants(string, schema.Role) []string { return nil }

func (d sqliteFile) Secrecy() string { return "" }
