package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// ErrInUse is matched by the error of Restore while a process has the ledger open.
var ErrInUse = errors.New("sqlite: the ledger is open elsewhere")

// RestoreHooks are called by Restore. If one of them fails, nothing is changed.
type RestoreHooks struct {
	// Replace is called before an existing file is replaced.
	Replace func() error
	// Fill may write into the restored ledger before any other process sees it. newest is the newest time in the backup.
	Fill func(s *Store, newest time.Time) error
}

// Restore puts a backup in the place of a ledger: a copy of the backup, of the schema of this program. An existing file
// is moved beside it, with all its commits, and before is its new path; "" if there was none. Restore fails if a
// process has the ledger open, and no process can open it meanwhile. At any time a complete file is at the path: the
// old or the new one. After a crash between the last two steps the old one has two names, so Open refuses it until one
// is removed.
//
// Errors: ledger.ErrNoLedger, ledger.ErrSchema and ledger.ErrDamaged of the backup; ErrInUse, of kind
// ledger.ErrUnavailable; ledger.ErrInvalid for a path that cannot hold a ledger, or is the backup itself.
func Restore(ctx context.Context, from, path string, r RestoreHooks) (before string, err error) {
	source, err := backupOf(ctx, from)
	if err != nil {
		return "", err
	}
	f, err := locate(path, false)
	if err != nil {
		return "", err
	}
	if f.path == source.path {
		return "", &ledger.Error{Kind: ledger.ErrInvalid, Message: fmt.Sprintf("%s is the ledger itself, not a backup of it",
			from), Hint: "name the file that a backup wrote"}
	}
	if !missing(f) {
		if err := r.Replace(); err != nil {
			return "", err
		}
	}
	waiting, cancel := context.WithTimeout(ctx, lockPatience)
	unlock, err := f.lock(waiting)
	cancel()
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return "", inUse(path, err)
	}
	if err != nil {
		return "", explain(path, err)
	}
	defer unlock()
	before, err = f.replace(ctx, source, r.Fill)
	return before, explain(path, err)
}

// lockPatience is how long Restore waits for a process that makes or migrates the ledger.
const lockPatience = 2 * time.Second

func inUse(name string, cause error) error {
	return &ledger.Error{Kind: ledger.ErrUnavailable, Message: fmt.Sprintf("%s is open in another program", name),
		Hint: "stop every program that uses the ledger, then run the same command again; nothing was changed",
		Err:  errors.Join(ErrInUse, cause)}
}

// backupOf returns the file of a backup that can be restored.
func backupOf(ctx context.Context, from string) (*file, error) {
	f, err := locate(from, true)
	if err == nil {
		_, err = usable(ctx, f, Options{MustExist: true})
	}
	if err == nil {
		var places []string
		if places, err = damageOf(ctx, from); len(places) > 0 {
			err = &ledger.Error{Kind: ledger.ErrDamaged,
				Message: fmt.Sprintf("%s is damaged: %s", from, strings.Join(places, "\n"))}
		}
	}
	err = explain(from, err)
	if e, ok := errors.AsType[*ledger.Error](err); ok && (e.Kind == ledger.ErrDamaged || e.Kind == ledger.ErrNoLedger) {
		return nil, &ledger.Error{Kind: e.Kind, Message: e.Message, Err: err,
			Hint: "restore another backup; nothing was changed"}
	}
	return f, err
}

// replace is Restore while it holds the lock against making and migrating the ledger.
func (f *file) replace(ctx context.Context, source *file, fill func(*Store, time.Time) error) (before string,
	err error) {
	exists := !missing(f)
	if exists && !replacesOpenFiles {
		return "", &ledger.Error{Kind: ledger.ErrInvalid, Message: f.name + " exists, and Windows replaces no file that is open",
			Hint: "stop every program that uses the ledger, rename its file, then restore again; nothing was changed"}
	}
	if exists {
		release, err := f.hold(ctx)
		if err != nil {
			return "", err
		}
		defer release()
	}
	part := &file{name: f.name, path: f.path + ".restoring"}
	defer func() {
		os.Remove(part.path + ".migrate") // Windows leaves it
		if err != nil {
			part.remove()
		}
	}()
	part.remove() // removes what a crash has left
	if err := part.fillFrom(ctx, source, fill); err != nil {
		return "", err
	}
	var undo []func() error // Open refuses a file with two names
	defer func() {
		for _, step := range slices.Backward(undo) {
			err = errors.Join(err, step())
		}
	}()
	before = f.path + ".before-restore-" + time.Now().UTC().Format("20060102T150405.000Z")
	if exists {
		if err := part.copyOwner(f); err != nil {
			return "", err
		}
		if err := os.Link(f.path, before); err != nil {
			return "", err
		}
		link := before // undo runs after before was set to the result
		undo = append(undo, func() error { return os.Remove(link) })
	}
	for _, end := range []string{"-wal", "-shm", "-journal"} { // they are left if the file was damaged or removed
		from, to := f.path+end, before+end
		switch err := os.Rename(from, to); {
		case err == nil:
			undo = append(undo, func() error { return os.Rename(to, from) })
		case !errors.Is(err, fs.ErrNotExist):
			return "", err
		}
	}
	if err := os.Rename(part.path, f.path); err != nil {
		return "", err
	}
	undo = nil
	if !exists {
		before = ""
	}
	return before, syncDir(filepath.Dir(f.path))
}

func (f *file) remove() {
	for _, end := range side {
		os.Remove(f.path + end)
	}
}

// fillFrom makes f a copy of a backup and calls fill. After that, f is one file without a log, and on the disk.
func (f *file) fillFrom(ctx context.Context, source *file, fill func(*Store, time.Time) error) error {
	if err := f.create(); err != nil {
		return err
	}
	if err := source.vacuumInto(ctx, f.path); err != nil {
		return err
	}
	s, err := Open(ctx, f.path, Options{MustExist: true})
	if err != nil {
		return err
	}
	latest, err := newestTime(ctx, f)
	if err == nil {
		err = fill(s, latest)
	}
	if err = errors.Join(err, s.Close()); err != nil {
		return err
	}
	release, err := f.hold(ctx)
	if err != nil {
		return err
	}
	release()
	file, err := os.OpenFile(f.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Sync()
}

// hold makes the ledger one file and locks it against all other processes. SQLite ends write-ahead logging only if no
// other connection is open. A process that has found the old file and opens it later sees that it is no longer in that
// mode, and gives up. If SQLite cannot read the file, hold locks the bytes that SQLite locks.
func (f *file) hold(ctx context.Context) (release func(), err error) {
	h, err := open(ctx, f.uri("busy_timeout(0)"))
	if err == nil {
		var mode string
		if mode, err = pragma(ctx, h, "journal_mode = DELETE"); err == nil && mode != "delete" {
			err = fmt.Errorf("sqlite: %s: PRAGMA journal_mode is %s, must be delete", f.name, mode)
		}
		if err == nil {
			_, err = h.exec(ctx, "BEGIN EXCLUSIVE", nil)
		}
		if err == nil {
			return func() { h.close() }, nil // it wrote nothing
		}
		err = errors.Join(err, h.close())
	}
	switch {
	case busy(err):
		return nil, inUse(f.name, err)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	place, err := os.OpenFile(f.path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	if err := lockAll(place); err != nil {
		place.Close()
		return nil, inUse(f.name, err)
	}
	return func() { place.Close() }, nil
}

// The bytes of a file that SQLite locks (sqlite.org/src, os.h: PENDING_BYTE, SHARED_SIZE).
const (
	firstLock   = 1 << 30
	lockedBytes = 2 + 510
)

// newestTime returns the newest time in a ledger: of items, ends, heartbeats and entries of the journal.
func newestTime(ctx context.Context, f *file) (at time.Time, err error) {
	h, err := open(ctx, f.uri("busy_timeout(5000)", "query_only(1)"))
	if err != nil {
		return at, err
	}
	defer h.close()
	err = h.with(ctx).query(`SELECT max(coalesce((SELECT max(seen_at) FROM ledger_agents), 0), coalesce((SELECT max(
 (SELECT max(finished_at) FROM ledger_attempts WHERE final = 1 AND kind = k.kind)) FROM ledger_kinds k), 0),
 coalesce((SELECT created_at FROM ledger_items ORDER BY id DESC LIMIT 1), 0),
 coalesce((SELECT at FROM ledger_journal ORDER BY id DESC LIMIT 1), 0))`, func(r row) error {
		at = r.time(0)
		return nil
	})
	return at, err
}
