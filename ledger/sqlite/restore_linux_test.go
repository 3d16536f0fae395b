package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/internal/childtest"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/stracetest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

// A restore that dies before its last step leaves the old ledger. That may have two names, and is then refused until
// one is removed. What is left does not hinder the next restore.
func TestRestoreDies(t *testing.T) {
	// at is the call that kills the process, and the end of its file's name: strace counts the calls of each thread, so
	// the number of a call would not find it. names is how many names the old ledger has afterwards.
	for at, names := range map[[2]string]int{{"linkat", ""}: 1, {"renameat", "-wal"}: 2, {"renameat", ".restoring"}: 2} {
		t.Run(at[0]+at[1], func(t *testing.T) {
			path, backup := backedUp(t)
			child := childtest.New(t, "restore", backup, path)
			stracetest.Wrap(t, child.Cmd, "-P", path+at[1], "-e", "trace="+at[0], "-e", "inject="+at[0]+":signal=KILL")
			child.Begin(t)
			if err := child.Wait(); err == nil {
				t.Fatal("it did not die")
			}
			aside, err := filepath.Glob(path + ".before-restore-*")
			must.OK(t, err)
			if len(aside) != names-1 {
				t.Errorf("aside: %v", aside)
			}
			for _, name := range aside {
				if _, err := sqlite.Open(t.Context(), path, sqlite.Options{}); !errors.Is(err, ledger.ErrInvalid) {
					t.Errorf("with two names: %v", err)
				}
				must.OK(t, os.Remove(name))
			}
			if n := items(t, path); n != 7 {
				t.Errorf("%d items", n)
			}
			must.Do(t)(sqlite.Restore(t.Context(), backup, path, agreed))
			if n := items(t, path); n != 5 {
				t.Errorf("%d items are restored", n)
			}
		})
	}
}
