package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

// A backup that is taken while items are added and removed is complete: SQLite finds no fault in the file, the rules
// find none in the rows, and the file has everything that was answered before.
func TestBackup(t *testing.T) {
	path := newPath(t)
	s := mustOpen(t, path, sqlite.Options{})
	l := ledger.New(s, ledger.Options{})
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	begun := make(chan struct{})
	work.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			items := make([]ledger.NewItem, 100)
			for k := range items {
				items[k] = ledger.NewItem{Kind: "k", Key: fmt.Sprintf("%d/%d", i, k), Payload: make([]byte, 300)}
			}
			if _, err := l.Add(t.Context(), items...); err != nil {
				t.Error(err)
				return
			}
			leases, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: 60})
			if err != nil {
				t.Error(err)
				return
			}
			for _, ls := range leases {
				if err := l.Finish(t.Context(),
					ledger.Ending{Lease: ls, Result: ledger.Result{Outcome: ledger.OutcomeDone}})[0]; err != nil {
					t.Error(err)
				}
			}
			if i == 0 {
				close(begun)
			}
		}
	})
	<-begun
	for i := range 3 {
		before, err := l.Count(t.Context(), ledger.Filter{})
		must.OK(t, err)
		to := filepath.Join(t.TempDir(), "it's.db")
		must.OK(t, s.Backup(t.Context(), to))
		if info, err := os.Stat(to); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("backup %d: %v, %v", i, info.Mode(), err)
		}
		if got := value[string](t, database(t, to), "PRAGMA integrity_check"); got != "ok" {
			t.Errorf("backup %d: %s", i, got)
		}
		kept := ledger.New(mustOpen(t, to, sqlite.Options{MustExist: true}), ledger.Options{})
		if n, err := kept.Count(t.Context(), ledger.Filter{}); err != nil || n < before {
			t.Errorf("backup %d has %d items, %v; there were %d before it", i, n, err, before)
		}
		verify(t, kept)
	}
}

func TestBackupTouchesNothing(t *testing.T) {
	s := mustOpen(t, newPath(t), sqlite.Options{})
	dir := t.TempDir()
	there := filepath.Join(dir, "there")
	must.OK(t, os.WriteFile(there, []byte("mine"), 0o644))
	must.OK(t, os.Symlink(there, filepath.Join(dir, "link")))
	for _, name := range []string{there, filepath.Join(dir, "link"), dir} {
		if err := s.Backup(t.Context(), name); !errors.Is(err, ledger.ErrInvalid) {
			t.Errorf("onto %s: %v", name, err)
		}
	}
	if text, err := os.ReadFile(there); string(text) != "mine" {
		t.Errorf("it was touched: %q %v", text, err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Backup(cancelled, filepath.Join(dir, "new")); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if entries, err := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("something was left: %v %v", entries, err)
	}
}
