package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/wait"
)

// file is the place of the ledger.
type file struct {
	name string        // as the user wrote it, for messages
	path string        // absolute, symbolic links resolved: SQLite's side files lie beside it
	open []os.FileInfo // the files as they were opened, in the order of side
}

// locate finds the file, or the place for a new one, makes the folder if it may, and refuses a path that cannot hold a
// ledger. It never opens the file: closing it again would drop the locks that SQLite holds on it in this process.
func locate(name string, mustExist bool) (*file, error) {
	if name == "" {
		return nil, &ledger.InvalidError{Field: "path", Reason: "is empty"}
	}
	abs, err := filepath.Abs(name)
	if err != nil {
		return nil, explain(name, err)
	}
	f := &file{name: name, path: abs}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		f.path = real
	} else if errors.Is(err, fs.ErrNotExist) { // perhaps a link to a file that is still to be made
		for to, err := os.Readlink(f.path); err == nil; to, err = os.Readlink(f.path) {
			if !filepath.IsAbs(to) {
				dir := filepath.Dir(f.path)
				if real, err := filepath.EvalSymlinks(dir); err == nil {
					dir = real
				}
				to = filepath.Join(dir, to)
			}
			f.path = to
		}
	}
	dir := filepath.Dir(f.path)
	if system, err := networkFS(nearest(dir)); err != nil {
		return nil, explain(name, err)
	} else if system != "" {
		return nil, &ledger.Error{Kind: ledger.ErrInvalid,
			Message: fmt.Sprintf("%s is on %s; SQLite's locks are not reliable there and the ledger could be damaged", name,
				system), Hint: "put it on a local disk (as /var/lib/ledgerd/ledger.db), or use Postgres to share it"}
	}
	info, err := os.Stat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && mustExist:
		return nil, noLedger(name)
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, explain(name, err)
		}
	case err != nil:
		return nil, explain(name, err)
	case !info.Mode().IsRegular():
		return nil, &ledger.Error{Kind: ledger.ErrInvalid, Message: fmt.Sprintf("%s is not a file but a %s", name,
			kindOf(info.Mode())), Hint: "name a file, or a new name in that folder"}
	default:
		if err := mayUse(f.path, false); err != nil {
			return nil, denied(name, err)
		}
		if err := f.oneName(info); err != nil {
			return nil, err
		}
	}
	if err := mayUse(dir, true); err != nil {
		return nil, denied(name, err)
	}
	return f, nil
}

func kindOf(m fs.FileMode) string {
	if m.IsDir() {
		return "folder"
	}
	return "device"
}

// nearest returns dir, or the closest folder above it that exists.
func nearest(dir string) string {
	for {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// create makes the empty file, for its owner only, unless it exists.
func (f *file) create() error {
	n, err := os.OpenFile(f.path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	giveToFolder(n)
	return n.Close()
}

// side has the suffixes of the files of an open ledger: the file itself, its write-ahead log with the newest commits,
// and the index of the log. Processes share the index.
var side = []string{"", "-wal", "-shm"}

// watch records which files were opened. SQLite keeps the side files for as long as a connection is open.
func (f *file) watch() error {
	f.open = make([]os.FileInfo, len(side))
	for i, end := range side {
		info, err := os.Stat(f.path + end)
		if err != nil {
			return err
		}
		f.open[i] = info
	}
	return nil
}

// check returns an error if one of the files was replaced or removed since it was opened: writes would be lost.
func (f *file) check() error {
	if !replacesOpenFiles {
		return nil
	}
	for i, end := range side {
		info, err := os.Stat(f.path + end)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(f.open[i], info) {
			return gone(f.name + end)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// uri returns the name of the file for SQLite. SQLite then never creates the file.
func (f *file) uri(pragmas ...string) string {
	q := url.Values{"mode": {"rw"}, "_pragma": pragmas, "_error_rc": {"1"}}
	return (&url.URL{Scheme: "file", Path: uriPath(f.path), RawQuery: q.Encode()}).String()
}

// retryEvery is the time between two tries to take a short lock while a ledger is opened.
const retryEvery = 2 * time.Millisecond

// lock keeps other processes from opening a new ledger at the same time, since two processes that switch a file to WAL
// at once, or apply the same migration, fail. It locks a file beside the ledger; unlock removes that file.
func (f *file) lock(ctx context.Context) (unlock func(), err error) {
	path := f.path + ".migrate"
	for {
		l, err := openLock(path)
		if err != nil {
			return nil, err
		}
		locked, err := tryLock(l)
		switch {
		case locked && sameFile(l, path):
			return func() { dropLock(l) }, nil
		case err != nil:
			l.Close()
			return nil, err
		}
		l.Close() // another process held it, or has removed it since
		if err := wait.For(ctx, retryEvery); err != nil {
			return nil, err
		}
	}
}

func sameFile(l *os.File, path string) bool {
	a, errA := l.Stat()
	b, errB := os.Stat(path)
	return errA == nil && errB == nil && os.SameFile(a, b)
}
