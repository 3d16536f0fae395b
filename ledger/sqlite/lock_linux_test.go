package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func init() {
	// The lock that SQLite takes before it removes the log of a file that no other process has open.
	children["lock"] = func(_ context.Context, args []string) error {
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

// Opening and closing the file, as a backup or a checksum does, does not take the store's lock
// on it away: another program that ends would remove the log of the running one.
func TestFileReadBesides(t *testing.T) {
	_, path := newLedger(t)
	contents(t, path)
	c := spawn(t, "lock", path).start(t)
	if c.line(t) != "true" {
		t.Error("the file is not locked any more")
	}
	c.done(t)
}
