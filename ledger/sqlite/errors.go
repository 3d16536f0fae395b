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
	"github.com/ledgerd/ledgerd/ledger/act"
)

// errClosed is the error of calls after Close.
var errClosed = fmt.Errorf("%w: the ledger is closed", ledger.ErrInvalid)

// resultCode returns the SQLite result code of an error, 0 if it is no error of SQLite.
func resultCode(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

// busy reports whether another connection holds a lock that the statement needs.
func busy(err error) bool {
	switch resultCode(err) & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL:
		return true
	}
	return false
}

// explain turns an error of SQLite or of the system into a *ledger.Error with a hint. name is the ledger as the user
// named it. All other errors stay as they are.
func explain(name string, err error) error {
	var known *ledger.Error
	if err == nil || errors.As(err, &known) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) {
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
	if resultCode(err) == sqlite3.SQLITE_IOERR_SHMSIZE { // SQLite gives no reason; mostly the disk is full
		return &ledger.Error{Kind: ledger.ErrUnavailable, Err: err,
			Message: fmt.Sprintf("%s: the disk is full, or reports an error: %v", name, err),
			Hint:    "nothing that was answered is lost; make room, or look at the disk, then run the same command again"}
	}
	switch resultCode(err) & 0xff {
	case sqlite3.SQLITE_FULL:
		return full(name, err)
	case sqlite3.SQLITE_IOERR:
		return &ledger.Error{Kind: ledger.ErrUnavailable, Err: err,
			Message: fmt.Sprintf("%s: the disk reports an error: %v", name, err),
			Hint:    "nothing that was answered is lost; look at the disk, then run the same command again"}
	case sqlite3.SQLITE_CANTOPEN:
		if cause := outOfFiles(); cause != nil {
			return &ledger.Error{Kind: ledger.ErrUnavailable, Message: fmt.Sprintf("%s cannot be opened now: %v", name, cause),
				Hint: "close what is not needed, or raise the limit (ulimit -n); nothing was lost, run the same command again", Err: err}
		}
		return denied(name, err)
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH:
		return denied(name, err)
	case sqlite3.SQLITE_NOTADB:
		return foreign(name, "it is no SQLite file")
	case sqlite3.SQLITE_CORRUPT:
		return &ledger.Error{Kind: ledger.ErrDamaged, Message: fmt.Sprintf("%s is damaged: %v", name, err), Hint: recovery,
			Err: err}
	}
	return err
}

// outOfFiles returns the reason why this process can open no file at all, nil if it can. SQLite reports both that and a
// file that may not be opened in the same way.
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
	return &ledger.Error{Kind: ledger.ErrUnavailable, Err: cause, Message: name + ": ledger is locked by another process",
		Hint: "something holds its write lock: a long transaction, a backup, an sqlite3 shell; nothing was lost, " +
			"run the same command again"}
}

func crowded(name string, cause error) error {
	return &ledger.Error{Kind: ledger.ErrUnavailable, Err: cause,
		Message: name + ": this process's own writes take too long",
		Hint: "a slow disk, or one write that takes long: a wide prune or act, a transaction of the program; " +
			"nothing was lost, run the same command again"}
}

func full(name string, cause error) error {
	return &ledger.Error{Kind: ledger.ErrUnavailable, Message: name + ": the disk is full",
		Hint: "nothing that was answered is lost; make room, then run the same command again", Err: cause}
}

func denied(name string, cause error) error {
	return &ledger.Error{Kind: ledger.ErrDenied, Message: fmt.Sprintf("%s: not allowed: %v", name, cause),
		Hint: "the file and its folder must be writable for you: SQLite keeps two files beside it", Err: cause}
}

func foreign(name, why string) error {
	return &ledger.Error{Kind: ledger.ErrSchema, Message: fmt.Sprintf("%s is not a ledger: %s", name, why),
		Hint: "it was not touched; name another file"}
}

func gone(name string) error {
	return &ledger.Error{Kind: ledger.ErrNoLedger, Message: name + " was deleted or replaced while it was open",
		Hint: "nothing is written any more: put the file back, or start again with the one that is there; without " +
			"its -wal the newest commits are missing"}
}

func noLedger(name string) error {
	return &ledger.Error{Kind: ledger.ErrNoLedger, Message: fmt.Sprintf("no ledger in %s", name),
		Hint: "make one", Act: act.Act{Name: act.Migrate}}
}
