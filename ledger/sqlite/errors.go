package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/ledgerd/ledgerd/ledger"
)

// failure says what went wrong, where, and what to do. It matches one of the ledger's errors
// (none: it is for a person or a bug report) and the cause.
type failure struct {
	kind  error
	text  string
	cause error
}

func (f *failure) Error() string { return f.text }

func (f *failure) Unwrap() []error {
	var all []error
	for _, err := range []error{f.kind, f.cause} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// errClosed answers calls after Close.
var errClosed = errors.New("sqlite: the ledger is closed")

// code is the SQLite result code of an error, 0 if it is none of SQLite's.
func code(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

// busy says whether somebody else holds a lock that the statement needs.
func busy(err error) bool {
	switch code(err) & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL:
		return true
	}
	return false
}

// explain turns an error of SQLite or of the system into one that a user can act on. name is
// the ledger as the user named it. All other errors stay as they are.
func explain(name string, err error) error {
	var known *failure
	if err == nil || errors.As(err, &known) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return denied(name, err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return full(name, err)
	}
	if busy(err) {
		return locked(name, err)
	}
	if code(err) == sqlite3.SQLITE_IOERR_SHMSIZE { // of which SQLite does not say why: mostly there is no room
		return &failure{ledger.ErrUnavailable, fmt.Sprintf("%s: the disk is full, or reports an error: %v\n  nothing that was answered is lost; make room, or look at the disk, then run the same command again", name, err), err}
	}
	switch code(err) & 0xff {
	case sqlite3.SQLITE_FULL:
		return full(name, err)
	case sqlite3.SQLITE_IOERR:
		return &failure{ledger.ErrUnavailable, fmt.Sprintf("%s: the disk reports an error: %v\n  nothing that was answered is lost; look at the disk, then run the same command again", name, err), err}
	case sqlite3.SQLITE_CANTOPEN:
		if cause := outOfFiles(); cause != nil {
			return &failure{ledger.ErrUnavailable, fmt.Sprintf("%s cannot be opened now: %v\n  close what is not needed, or raise the limit (ulimit -n); nothing was lost, run the same command again", name, cause), err}
		}
		return denied(name, err)
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH:
		return denied(name, err)
	case sqlite3.SQLITE_NOTADB:
		return foreign(name, "it is no SQLite file")
	case sqlite3.SQLITE_CORRUPT:
		return &failure{nil, fmt.Sprintf("%s is damaged: %v\n  stop everything that uses it, keep a copy, then try: sqlite3 %s .recover", name, err, name), err}
	}
	return err
}

// outOfFiles is the reason why this process can open no file at all, nil if it can: SQLite does
// not tell that from a file that may not be opened.
func outOfFiles() error {
	f, err := os.Open(os.DevNull)
	if err == nil {
		f.Close()
	}
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return err
	}
	return nil
}

func locked(name string, cause error) error {
	return &failure{ledger.ErrUnavailable, fmt.Sprintf("%s: ledger is locked by another process\n  something holds its write lock: a long transaction, a backup, an sqlite3 shell; nothing was lost, run the same command again", name), cause}
}

func full(name string, cause error) error {
	return &failure{ledger.ErrUnavailable, fmt.Sprintf("%s: the disk is full\n  nothing that was answered is lost; make room, then run the same command again", name), cause}
}

func denied(name string, cause error) error {
	return &failure{ledger.ErrDenied, fmt.Sprintf("%s: not allowed: %v\n  the file and its folder must be writable for you: SQLite keeps two files beside it", name, cause), cause}
}

func foreign(name, why string) error {
	return &failure{ledger.ErrSchema, fmt.Sprintf("%s is not a ledger: %s\n  it was not touched; name another file", name, why), nil}
}

func gone(name string) error {
	return &failure{ledger.ErrNoLedger, fmt.Sprintf("%s was deleted or replaced while it was open\n  nothing is written any more: put the file back, or start again with the one that is there", name), nil}
}

func noLedger(name string) error {
	return &failure{ledger.ErrNoLedger, fmt.Sprintf("no ledger in %s\n  make one: ledgerd db migrate --db sqlite:%s", name, name), nil}
}
