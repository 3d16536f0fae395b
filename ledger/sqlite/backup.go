package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/ledgerd/ledgerd/ledger"
)

// Backup writes the ledger, as it is at one moment while work goes on, into a new file: compact, readable for its owner
// only, and on the disk when Backup returns. The file is a ledger with the same id. Until it is complete it has another
// name in the same folder. A Backup that fails removes it.
//
// Errors: ledger.ErrInvalid if path exists; ledger.ErrDenied, ledger.ErrUnavailable.
func (s *Store) Backup(ctx context.Context, path string) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return errClosed
	}
	if err := s.file.check(); err != nil {
		return explain(s.file.name, err)
	}
	return explain(path, s.file.backup(ctx, path))
}

// Backup is Store.Backup of a ledger that this program has not opened, of any schema that this program may use. It does
// not migrate an older ledger.
func Backup(ctx context.Context, from, path string) error {
	f, err := locate(from, true)
	if err != nil {
		return err
	}
	if _, err := usable(ctx, f, Options{MustExist: true}); err != nil {
		return explain(from, err)
	}
	return explain(path, f.backup(ctx, path))
}

func (f *file) backup(ctx context.Context, path string) (err error) {
	if _, err := os.Lstat(path); err == nil {
		return isThere(path, fs.ErrExist)
	}
	part, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".part-*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() {
		part.Close()
		if e := os.Remove(part.Name()); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}()
	if err := f.vacuumInto(ctx, part.Name()); err != nil {
		return err
	}
	if err := errors.Join(part.Sync(), part.Close()); err != nil { // Windows renames no open file
		return err
	}
	if err := publish(part.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// publish gives a complete file its name, unless there is a file of this name. Only where the file system has no links,
// an empty file has the name for a moment: a rename alone would replace an existing file.
func publish(part, path string) error {
	err := os.Link(part, path)
	if err == nil {
		return os.Remove(part) // SQLite refuses a file with two names
	}
	if !errors.Is(err, fs.ErrExist) {
		var place *os.File
		if place, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err == nil {
			place.Close()
			if err = os.Rename(part, path); err != nil {
				err = errors.Join(err, os.Remove(path))
			}
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return isThere(path, err)
	}
	return err
}

func isThere(path string, cause error) error {
	return &ledger.Error{Kind: ledger.ErrInvalid, Message: fmt.Sprintf("%s is there already and was not touched", path),
		Hint: "name a new file", Err: cause}
}

// vacuumInto writes a snapshot. It reads on its own connection and blocks no other.
func (f *file) vacuumInto(ctx context.Context, path string) (err error) {
	h, err := open(ctx, f.uri("busy_timeout(5000)", "temp_store(MEMORY)"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	_, err = h.exec(ctx, "VACUUM INTO '"+strings.ReplaceAll(path, "'", "''")+"'", nil)
	switch code := resultCode(err) & 0xff; {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case code == sqlite3.SQLITE_CORRUPT, code == sqlite3.SQLITE_NOTADB, busy(err): // this is about the ledger
		return explain(f.name, err)
	}
	return err
}
