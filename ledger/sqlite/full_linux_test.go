package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

func init() {
	children["full"] = func(ctx context.Context, args []string) error {
		if err := unix.Mount("ledger", args[0], "tmpfs", 0, "size=2m,mode=0700"); err != nil {
			fmt.Println("cannot mount:", err)
			return nil
		}
		fmt.Println("mounted")
		return fillDisk(ctx, args[0])
	}
}

// A full disk is said, costs nothing that was answered, and is over when there is room again.
// The disk is a small one in memory, which only this process sees.
func TestDiskFull(t *testing.T) {
	c := spawn(t, "full", t.TempDir())
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
	}
	err := c.Start()
	if err != nil || c.line(t) != "mounted" {
		t.Logf("no disk of its own: %v; the limit of pages stands in for it, see TestPagesFull", err)
		return
	}
	t.Cleanup(func() { c.Process.Kill() })
	c.done(t)
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
		return fmt.Errorf("not said: %w", err)
	}
	full := n
	for range 20 { // it stays so, and readers work
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
	deadline := time.Now().Add(10 * time.Second)
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
