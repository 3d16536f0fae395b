package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pressly/goose/v3"
	"golang.org/x/sys/unix"

	"github.com/ledgerd/ledgerd/internal/childtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/schema"
)

func init() {
	childtest.Runs["full"] = onSmallDisk(fillDisk)
	childtest.Runs["noroom"] = onSmallDisk(migrateWithoutRoom)
}

// onSmallDisk returns a child that runs do on a disk of 2 MiB.
func onSmallDisk(do func(ctx context.Context, dir string) error) func(context.Context, []string) error {
	return func(ctx context.Context, args []string) error {
		if err := unix.Mount("ledger", args[0], "tmpfs", 0, "size=2m,mode=0700"); err != nil {
			fmt.Println("cannot mount:", err)
			return nil
		}
		fmt.Println("mounted")
		return do(ctx, args[0])
	}
}

// A full disk is reported, nothing that was answered is lost, and the store works again when there is room. The disk is
// a small one in memory. Only this process sees it.
func TestDiskFull(t *testing.T) { smallDisk(t, "full") }

// A ledger that cannot be copied for lack of room is not migrated, and no file is left beside it.
func TestNoRoomForCopy(t *testing.T) { smallDisk(t, "noroom") }

// smallDisk runs a child that has its own disk.
func smallDisk(t *testing.T, child string) {
	c := childtest.New(t, child, t.TempDir())
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
	}
	err := c.Start()
	if err != nil || c.Line(t) != "mounted" {
		t.Logf("no disk of its own: %v; the limit of pages stands in for it, see TestPagesFull", err)
		return
	}
	t.Cleanup(func() { c.Process.Kill() })
	c.Done(t)
}

func migrateWithoutRoom(ctx context.Context, dir string) error {
	path := filepath.Join(dir, "ledger.db")
	db, err := openDatabase(path)
	if err != nil {
		return err
	}
	files, err := fs.Sub(schema.SQLite, "sqlite")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithTableName(schema.Table),
		goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	if _, err := p.UpTo(ctx, int64(schema.Version)-1); err != nil {
		return err
	}
	for _, statement := range []string{"INSERT INTO ledger_kinds (kind) VALUES ('k')",
		"INSERT INTO ledger_items (kind, key, slot, created_at, payload) VALUES ('k', 'a', 1, 1, zeroblob(400000))"} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	if err := db.Close(); err != nil {
		return err
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1200<<10), 0o600); err != nil {
		return err
	}
	_, err = sqlite.Open(ctx, path, sqlite.Options{MustExist: true, Copy: true})
	e, ok := errors.AsType[*ledger.Error](err)
	if !ok || !errors.Is(err, ledger.ErrUnavailable) || !strings.Contains(e.Message, "was not migrated: no copy of it "+
		"could be written: ") || !strings.Contains(e.Message, "the disk is full") ||
		!strings.HasPrefix(e.Hint, "nothing was changed; make room") {
		return fmt.Errorf("the migration without room: %w", err)
	}
	have, _, err := sqlite.Status(ctx, path)
	left, globbed := filepath.Glob(path + "*")
	if err != nil || globbed != nil || have != schema.Version-1 || len(left) != 1 {
		return fmt.Errorf("schema %d, files %q, %w", have, left, errors.Join(err, globbed))
	}
	if err := os.Remove(ballast); err != nil {
		return err
	}
	s, err := sqlite.Open(ctx, path, sqlite.Options{MustExist: true, Copy: true})
	if err != nil {
		return err
	}
	return s.Close()
}

func fillDisk(ctx context.Context, dir string) error {
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 600<<10), 0o600); err != nil {
		return err
	}
	s, err := sqlite.Open(ctx, filepath.Join(dir, "ledger.db"), sqlite.Options{})
	if err != nil {
		return err
	}
	l := ledger.New(s, ledger.Options{})
	defer l.Close()
	n := 0
	add := func() error {
		_, err := l.Add(ctx, ledger.NewItem{Kind: "k", Key: fmt.Sprint(n), Payload: make([]byte, 20<<10)})
		if err == nil {
			n++
		}
		return err
	}
	for err == nil {
		err = add()
	}
	if !errors.Is(err, ledger.ErrUnavailable) || !strings.Contains(err.Error(), "the disk is full") {
		return fmt.Errorf("on the full disk: %w", err)
	}
	full := n
	for range 20 { // the disk stays full, and readers work
		if err := add(); err != nil && !errors.Is(err, ledger.ErrUnavailable) {
			return err
		}
		if there, err := l.Count(ctx, ledger.Filter{}); err != nil || there != int64(n) {
			return fmt.Errorf("%d items of %d: %w", there, n, err)
		}
	}
	if err := os.Remove(ballast); err != nil {
		return err
	}
	deadline := time.Now().Add(time.Minute)
	for n < full+10 {
		if err := add(); err != nil && time.Now().After(deadline) {
			return fmt.Errorf("still, though there is room: %w", err)
		}
	}
	if _, err := l.Claim(ctx, ledger.Claim{Kind: "k", Agent: "a", Limit: 5}); err != nil {
		return err
	}
	for v, err := range l.Verify(ctx) {
		return fmt.Errorf("%v %w", v, err)
	}
	there, err := l.Count(ctx, ledger.Filter{})
	if err != nil || there != int64(n) {
		return fmt.Errorf("%d items of %d, %w", there, n, err)
	}
	db, err := openDatabase(filepath.Join(dir, "ledger.db"))
	if err != nil {
		return err
	}
	defer db.Close()
	var sound string
	if err := db.QueryRowContext(ctx, "PRAGMA integrity_check").Scan(&sound); err != nil || sound != "ok" {
		return fmt.Errorf("integrity: %s %w", sound, err)
	}
	return nil
}
