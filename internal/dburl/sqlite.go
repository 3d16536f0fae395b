package dburl

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/ledgerd/ledgerd/internal/query"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

// sqliteFile is a ledger in an SQLite file.
type sqliteFile struct{ path string }

// File is the ledger in the SQLite file with this absolute path.
func File(path string) Database { return sqliteFile{path} }

func (d sqliteFile) String() string { return "sqlite:" + d.path }

func (d sqliteFile) Brief() string { return ShortPath(d.path) }

// ShortPath is a path as people read it.
func ShortPath(path string) string {
	if home, err := os.UserHomeDir(); err == nil {
		if rel, err := filepath.Rel(home, path); err == nil && !strings.HasPrefix(rel, "..") {
			return filepath.Join("~", rel)
		}
	}
	return path
}

func (d sqliteFile) Open(ctx context.Context, o Options) (ledger.Store, error) {
	if o.Make || o.Unfinished {
		if err := makeFolder(filepath.Dir(d.path)); err != nil {
			return nil, err
		}
	}
	store, err := sqlite.Open(ctx, d.path, sqlite.Options{MustExist: !o.Make && !o.Unfinished, Unfinished: o.Unfinished})
	if err != nil {
		return nil, err
	}
	return store, nil
}

// makeFolder makes the folder of a new ledger; what is in it is nobody else's business.
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

// Migrate opens the ledger, which brings it up to date.
func (d sqliteFile) Migrate(ctx context.Context) error {
	store, err := d.Open(ctx, Options{Make: true})
	if err != nil {
		return err
	}
	return store.Close()
}

func (d sqliteFile) Examine(ctx context.Context) ([]ledger.Finding, bool) {
	return sqlite.Examine(ctx, d.path)
}

func (d sqliteFile) Backup(ctx context.Context, path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	s, err := sqlite.Open(ctx, d.path, sqlite.Options{MustExist: true})
	if err != nil {
		return err
	}
	return errors.Join(s.Backup(ctx, path), s.Close())
}

func (d sqliteFile) Query(ctx context.Context, file, text string) (*query.Query, error) {
	return query.SQLite(ctx, d.path, file, text)
}

// Beside is a file in a hidden folder beside this one: on the same disk.
func (d sqliteFile) Beside(name string) (Database, func(context.Context) error, error) {
	parent := filepath.Dir(d.path)
	if err := makeFolder(parent); err != nil {
		return nil, nil, err
	}
	folder, err := os.MkdirTemp(parent, "."+name)
	return File(filepath.Join(folder, "ledger.db")), func(context.Context) error { return os.RemoveAll(folder) }, err
}

func (d sqliteFile) Version(ctx context.Context) (string, error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return "", err
	}
	defer db.Close()
	var version string
	err = db.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version)
	return "sqlite " + version, err
}

func (d sqliteFile) Secrecy() string { return "" }
