//go:build unix

package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ledgerd/ledgerd/internal/childtest"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

func init() {
	childtest.Runs["restore"] = func(ctx context.Context, args []string) error {
		_, err := sqlite.Restore(ctx, args[0], args[1], agreed)
		return err
	}
	childtest.Runs["killed"] = func(ctx context.Context, args []string) error {
		s, err := sqlite.Open(ctx, args[0], sqlite.Options{})
		if err != nil {
			return err
		}
		if _, err := ledger.New(s, ledger.Options{}).Add(ctx, numbered(8)...); err != nil {
			return err
		}
		childtest.Ask("added")
		return nil
	}
	childtest.Runs["locked"] = func(ctx context.Context, args []string) error { // as another program with SQLite holds it
		f, err := os.OpenFile(args[0], os.O_RDWR, 0)
		if err != nil {
			return err
		}
		shared := unix.Flock_t{Type: unix.F_RDLCK, Start: 1<<30 + 2, Len: 510}
		if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &shared); err != nil {
			return err
		}
		childtest.Ask("locked")
		return f.Close()
	}
}

var garbage = bytes.Repeat([]byte("x"), 9000)

// agreed replaces the ledger, and adds nothing to it.
var agreed = sqlite.RestoreHooks{Replace: func() error { return nil },
	Fill: func(*sqlite.Store, time.Time) error { return nil }}

// backedUp returns the closed file of a ledger with 7 items, and a backup of it with the first 5.
func backedUp(t *testing.T) (path, backup string) {
	t.Helper()
	path = newPath(t)
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	must.OK(t, err)
	l, backup := ledger.New(s, ledger.Options{}), path+".kept"
	must.Do(t)(l.Add(t.Context(), numbered(5)...))
	must.OK(t, s.Backup(t.Context(), backup))
	must.Do(t)(l.Add(t.Context(), numbered(7)...))
	must.OK(t, l.Close())
	return path, backup
}

// items counts the items of a ledger, and checks that it is sound.
func items(t *testing.T, path string) int64 {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{MustExist: true})
	must.OK(t, err)
	l := ledger.New(s, ledger.Options{})
	defer l.Close()
	verify(t, l)
	n, err := l.Count(t.Context(), ledger.Filter{})
	must.OK(t, err)
	return n
}

// The replaced ledger is kept complete, with the commits of a process that was killed. A damaged file is kept as it is.
func TestRestore(t *testing.T) {
	for name, c := range map[string]struct {
		before func(t *testing.T, path string)
		aside  int64 // items in the file that was there; -1: it is damaged, -2: there was none
	}{
		"closed": {func(*testing.T, string) {}, 7},
		"killed": {func(t *testing.T, path string) {
			child := childtest.Start(t, "killed", path)
			child.Expect(t, "added")
			must.OK(t, child.Process.Kill())
			child.Wait()
		}, 8},
		"damaged": {func(t *testing.T, path string) {
			must.OK(t, os.WriteFile(path, garbage, 0o600))
		}, -1},
		"gone": {func(t *testing.T, path string) {
			must.OK(t, errors.Join(os.Remove(path), os.WriteFile(path+"-wal", []byte("log"), 0o600)))
		}, -2},
	} {
		t.Run(name, func(t *testing.T) {
			path, backup := backedUp(t)
			c.before(t, path)
			there, err := sqlite.Restore(t.Context(), backup, path, agreed)
			must.OK(t, err)
			if n := items(t, path); n != 5 {
				t.Errorf("%d items are restored", n)
			}
			switch {
			case c.aside == -2:
				if logs, err := filepath.Glob(path + ".before-restore-*-wal"); there != "" || len(logs) != 1 || err != nil {
					t.Errorf("nothing was there but a log: %q, %v, %v", there, logs, err)
				}
			case c.aside == -1:
				if kept, err := os.ReadFile(there); !bytes.Equal(kept, garbage) {
					t.Errorf("it is not kept as it was: %d bytes, %v", len(kept), err)
				}
			default:
				if n := items(t, there); n != c.aside {
					t.Errorf("%d items are in the ledger as it was", n)
				}
			}
		})
	}
}

// A new ledger belongs to the owner of its folder, also if root makes or restores it. Only root can give a folder away.
func TestNewFileBelongsToFolder(t *testing.T) {
	_, backup := backedUp(t)
	for name, make := range map[string]func(path string) error{
		"made": func(path string) error {
			s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
			if err != nil {
				return err
			}
			defer s.Close()
			return owned(path + "-wal")
		},
		"restored": func(path string) error {
			_, err := sqlite.Restore(t.Context(), backup, path, agreed)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			if os.Getuid() == 0 {
				must.OK(t, os.Chown(filepath.Dir(path), 65534, 65534))
			}
			must.OK(t, make(path))
			must.OK(t, owned(path))
		})
	}
}

// owned returns an error if a file has another owner than its folder.
func owned(path string) error {
	var file, folder unix.Stat_t
	if err := errors.Join(unix.Stat(path, &file), unix.Stat(filepath.Dir(path), &folder)); err != nil {
		return err
	}
	if file.Uid != folder.Uid || file.Gid != folder.Gid {
		return fmt.Errorf("%s belongs to %d:%d, its folder to %d:%d", path, file.Uid, file.Gid, folder.Uid, folder.Gid)
	}
	return nil
}

// A ledger that a restore refuses or may not replace stays as it is, and so do the files beside it.
func TestRestoreRefuses(t *testing.T) {
	no := errors.New("no")
	for name, c := range map[string]struct {
		prepare func(t *testing.T, path, backup string)
		restore sqlite.RestoreHooks
		want    error
	}{
		"missing": {func(t *testing.T, _, backup string) { must.OK(t, os.Remove(backup)) }, agreed, ledger.ErrNoLedger},
		"damaged": {func(t *testing.T, _, backup string) {
			f, err := os.OpenFile(backup, os.O_RDWR, 0)
			must.OK(t, err)
			defer f.Close()
			must.Do(t)(f.WriteAt(make([]byte, 4096), 25*4096))
		}, agreed, ledger.ErrDamaged},
		"another file": {func(t *testing.T, _, backup string) {
			must.OK(t, os.WriteFile(backup, []byte("hello"), 0o600))
		}, agreed, ledger.ErrSchema},
		"too new": {func(t *testing.T, _, backup string) {
			run(t, database(t, backup), "UPDATE ledger_meta SET v = '9000' WHERE k = 'compatible_from'")
		}, agreed, ledger.ErrSchema},
		"itself": {func(t *testing.T, path, backup string) {
			must.OK(t, errors.Join(os.Remove(backup), os.Symlink(path, backup)))
		}, agreed, ledger.ErrInvalid},
		"open": {func(t *testing.T, path, _ string) {
			childtest.Start(t, "killed", path).Expect(t, "added")
		}, agreed, sqlite.ErrInUse},
		"damaged and open": {func(t *testing.T, path, _ string) {
			must.OK(t, os.WriteFile(path, garbage, 0o600))
			childtest.Start(t, "locked", path).Expect(t, "locked")
		}, agreed, sqlite.ErrInUse},
		"not agreed": {func(*testing.T, string, string) {}, sqlite.RestoreHooks{Replace: func() error { return no }}, no},
		"not filled": {func(*testing.T, string, string) {}, sqlite.RestoreHooks{Replace: agreed.Replace,
			Fill: func(*sqlite.Store, time.Time) error { return no }}, no},
	} {
		t.Run(name, func(t *testing.T) {
			path, backup := backedUp(t)
			c.prepare(t, path, backup)
			before, err := os.Stat(path)
			must.OK(t, err)
			if _, err := sqlite.Restore(t.Context(), backup, path, c.restore); !errors.Is(err, c.want) {
				t.Errorf("%v", err)
			}
			if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
				t.Errorf("it is another file: %v", err)
			}
			if left, err := filepath.Glob(path + ".*re*"); len(left) > 0 || err != nil {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
}

// A restored backup can begin another incarnation before any other process sees it. A process that had a copied file
// open notices that as well.
func TestRestoreBeginsAnew(t *testing.T) {
	ctx, path := t.Context(), newPath(t)
	s, err := sqlite.Open(ctx, path, sqlite.Options{})
	must.OK(t, err)
	l := ledger.New(s, ledger.Options{})
	must.Do(t)(l.Add(ctx, numbered(1)...))
	must.OK(t, s.Backup(ctx, path+".kept"))
	claim := ledger.Claim{Kind: "k", Agent: "me", Limit: 1}
	lost, err := l.Claim(ctx, claim)
	if must.OK(t, err); len(lost) != 1 {
		t.Fatalf("%d leases", len(lost))
	}
	must.OK(t, l.Close())
	var done ledger.Schema
	_, err = sqlite.Restore(ctx, path+".kept", path, sqlite.RestoreHooks{Replace: func() error { return nil },
		Fill: func(s *sqlite.Store, _ time.Time) (err error) {
			done, _, err = ledger.New(s, ledger.Options{}).Restored(ctx, "operator:me")
			return err
		}})
	must.OK(t, err)
	s, err = sqlite.Open(ctx, path, sqlite.Options{})
	must.OK(t, err)
	l = ledger.New(s, ledger.Options{})
	defer l.Close()
	attempts, ids := done.Above()
	again, err := l.Claim(ctx, claim)
	if err != nil || len(again) != 1 || again[0].Attempt != attempts+1 {
		t.Fatalf("%+v, %v", again, err)
	}
	if err := l.Finish(ctx, ledger.Ending{Lease: lost[0], Result: ledger.Done(nil)})[0]; !errors.Is(err,
		ledger.ErrLeaseLost) {
		t.Error(err)
	}
	added, err := l.Add(ctx, numbered(2)...)
	if must.OK(t, err); added[1].ID <= ids {
		t.Errorf("id %d, must be above %d", added[1].ID, ids)
	}
	other, err := sqlite.Open(ctx, path, sqlite.Options{})
	must.OK(t, err)
	defer other.Close()
	must.Do(t)(other.Schema(ctx))
	if _, _, err := l.Restored(ctx, "operator:me"); err != nil {
		t.Fatal(err)
	}
	if now, err := other.Schema(ctx); err != nil || now.Incarnation() != 3 || len(other.Opened().Floors) != 1 {
		t.Errorf("%+v, %v", now, err)
	}
	verify(t, l)
}
