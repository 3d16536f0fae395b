package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ledgerd/ledgerd/internal/childtest"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

func init() {
	// Before SQLite removes the log, it takes this lock, so that no other process has the file open. The child prints
	// whether the lock is refused.
	childtest.Runs["lock"] = func(_ context.Context, args []string) error {
		f, err := os.OpenFile(args[0], os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: 1<<30 + 2, Len: 510})
		fmt.Println(errors.Is(err, unix.EAGAIN))
		return nil
	}
}

func init() {
	// A program that uses another SQLite database before it opens the ledger, and then reads the ledger's file.
	childtest.Runs["own database first"] = func(ctx context.Context, args []string) error {
		own, err := sql.Open("sqlite", args[0]+".own")
		if err != nil {
			return err
		}
		defer own.Close()
		if _, err := own.ExecContext(ctx, "CREATE TABLE t (x)"); err != nil {
			return err
		}
		s, err := sqlite.Open(ctx, args[0], sqlite.Options{})
		if err != nil {
			return err
		}
		defer s.Close()
		if _, err := os.ReadFile(args[0]); err != nil {
			return err
		}
		childtest.Ask("ready")
		return nil
	}
}

// A program that used SQLite before it opened the ledger keeps its locks as well.
func TestOwnDatabaseFirst(t *testing.T) {
	path := newPath(t)
	program := childtest.Start(t, "own database first", path)
	program.Expect(t, "ready")
	c := childtest.Start(t, "lock", path)
	c.Expect(t, "true")
	c.Done(t)
	program.In.Close()
	program.Done(t)
}

// Opening and closing the file, as a backup or a checksum does, does not drop the store's lock on it. Otherwise a
// second program that ends would remove the log of the running one.
func TestFileReadBesides(t *testing.T) {
	_, path := newLedger(t)
	contents(t, path)
	c := childtest.Start(t, "lock", path)
	if c.Line(t) != "true" {
		t.Error("the file is not locked any more")
	}
	c.Done(t)
}
