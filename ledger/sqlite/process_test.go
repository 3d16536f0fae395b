package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/childtest"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

func init() {
	childtest.Runs["drain"] = drainChild
	childtest.Runs["hold"] = holdChild
}

// drainChild works all items of a ledger as agent args[1] and prints how many items it completed.
func drainChild(ctx context.Context, args []string) error {
	s, err := sqlite.Open(ctx, args[0], sqlite.Options{})
	if err != nil {
		return err
	}
	l := ledger.New(s, ledger.Options{})
	defer l.Close()
	childtest.Ask("ready")
	n := 0
	for {
		leases, err := l.Claim(ctx, ledger.Claim{Kind: "k", Agent: args[1], Limit: 100})
		if err != nil {
			return err
		}
		if len(leases) == 0 {
			fmt.Println(n)
			return nil
		}
		endings := make([]ledger.Ending, len(leases))
		for i, ls := range leases {
			endings[i] = ledger.Ending{Lease: ls, Result: ledger.Done(nil)}
		}
		if err := errors.Join(l.Finish(ctx, endings...)...); err != nil {
			return err
		}
		n += len(leases)
	}
}

// Several processes on one file share its work: each item is done once, no process starves, and no caller sees an error
// about a locked file.
func TestProcessesShare(t *testing.T) {
	for _, tt := range []struct{ processes, items, least int }{{2, 10_000, 20}, {4, 10_000, 5}} {
		t.Run(fmt.Sprint(tt.processes), func(t *testing.T) {
			l, path := newLedger(t)
			must.Do(t)(l.Add(t.Context(), numbered(tt.items)...))
			var all []*childtest.Child
			for i := range tt.processes {
				c := childtest.Start(t, "drain", path, fmt.Sprint("agent-", i))
				c.Expect(t, "ready")
				all = append(all, c)
			}
			for _, c := range all {
				c.In.Close()
			}
			sum := 0
			for i, c := range all {
				n, err := strconv.Atoi(c.Line(t))
				must.OK(t, err)
				c.Done(t)
				if n*100 < tt.items*tt.least {
					t.Errorf("process %d did %d of %d items, less than %d %%", i, n, tt.items, tt.least)
				}
				sum += n
			}
			if sum != tt.items {
				t.Errorf("%d items were done, of %d", sum, tt.items)
			}
			if n, err := l.Count(t.Context(), ledger.Filter{States: []ledger.State{ledger.StateDone}}); n != int64(tt.items) ||
				err != nil {
				t.Errorf("the ledger counts %d, %v", n, err)
			}
			verify(t, l)
		})
	}
}

// holdChild holds the write lock until its input ends.
func holdChild(ctx context.Context, args []string) error {
	db, err := openDatabase(args[0])
	if err != nil {
		return err
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	childtest.Ask("ready")
	_, err = conn.ExecContext(ctx, "COMMIT")
	return err
}

// A call waits for the transaction of another process, up to a deadline.
func TestLocked(t *testing.T) {
	path := newPath(t)
	l := ledger.New(mustOpen(t, path, sqlite.Options{}), ledger.Options{})
	hasty := ledger.New(mustOpen(t, path, sqlite.Options{Wait: 100 * time.Millisecond}), ledger.Options{})
	c := childtest.Start(t, "hold", path)
	c.Expect(t, "ready")
	within(t, 100*time.Millisecond, func() {
		_, err := hasty.Add(t.Context(), numbered(1)...)
		if !errors.Is(err, ledger.ErrUnavailable) || err.Error() != path+": ledger is locked by another process" ||
			ledger.Hint(err) == "" {
			t.Errorf("past the deadline: %v", err)
		}
	})
	if n, err := hasty.Count(t.Context(), ledger.Filter{}); n != 0 || err != nil {
		t.Errorf("readers do not wait: %d, %v", n, err)
	}
	result := make(chan error, 1)
	go func() {
		_, err := l.Add(t.Context(), numbered(1)...)
		result <- err
	}()
	select {
	case err := <-result:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(2 * time.Second): // for so long the lock is held
	}
	c.In.Close()
	c.Done(t)
	if err := <-result; err != nil {
		t.Errorf("it waited in vain: %v", err)
	}
	if _, err := hasty.Add(t.Context(), numbered(2)...); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// A side file that is deleted or replaced under a running store is noticed: its commits would be lost.
func TestSideFilesDeleted(t *testing.T) {
	for _, side := range []string{"-wal", "-shm"} {
		for name, remove := range map[string]func(path string) error{
			"deleted":  os.Remove,
			"replaced": func(path string) error { return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)) },
		} {
			t.Run(name+side, func(t *testing.T) {
				l, path := newLedger(t)
				must.Do(t)(l.Add(t.Context(), numbered(5)...))
				must.OK(t, remove(path+side))
				allFail(t, l, path+side+" was deleted")
			})
		}
	}
}

// allFail requires that calls which add, claim and read fail, because there is no ledger.
func allFail(t *testing.T, l *ledger.Ledger, message string) {
	t.Helper()
	_, addErr := l.Add(t.Context(), numbered(6)...)
	_, claimErr := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: 1})
	_, readErr := l.Counts(t.Context(), time.Now())
	for _, err := range []error{addErr, claimErr, readErr} {
		if !errors.Is(err, ledger.ErrNoLedger) || !strings.Contains(err.Error(), message) {
			t.Errorf("%v", err)
		}
	}
}

// A log that is deleted between the begin of a transaction and its commit is noticed before the answer.
func TestLogDeletedInTransaction(t *testing.T) {
	path := newPath(t)
	store := mustOpen(t, path, sqlite.Options{})
	err := store.Update(t.Context(), nil, func(tx ledger.Tx) error {
		_, err := tx.Load([]int64{1}) // begins the transaction
		return errors.Join(err, os.Remove(path+"-wal"))
	})
	if !errors.Is(err, ledger.ErrNoLedger) {
		t.Errorf("a commit to a deleted log was acknowledged: %v", err)
	}
}

// A file that is deleted or replaced under a running store is noticed, and not created again.
func TestDeleted(t *testing.T) {
	for name, remove := range map[string]func(path string) error{
		"deleted": os.Remove,
		"replaced": func(path string) error {
			return errors.Join(os.Rename(path, path+".old"), os.WriteFile(path, nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, path := newLedger(t)
			must.Do(t)(l.Add(t.Context(), numbered(5)...))
			must.OK(t, remove(path))
			allFail(t, l, path+" was deleted or replaced")
			if info, err := os.Stat(path); name == "deleted" && !os.IsNotExist(err) || name == "replaced" &&
				(err != nil || info.Size() != 0) {
				t.Errorf("the file was made again: %v, %v", info, err)
			}
			if name == "replaced" { // and put back
				must.OK(t, os.Rename(path+".old", path))
				if _, err := l.Add(t.Context(), numbered(6)...); err != nil {
					t.Errorf("after it was put back: %v", err)
				}
			}
		})
	}
}
