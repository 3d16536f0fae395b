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

// A restore that dies before its last step leaves the old ledger. That may have both names, and is refused until one of
// them is removed. What is left does not hinder the next restore.
func TestRestoreDies(t *testing.T) {
	for at, names := range map[string]int{"linkat:signal=KILL": 1, "renameat:signal=KILL:when=1": 2,
		"renameat:signal=KILL:when=4": 2} {
		t.Run(at, func(t *testing.T) {
			path, backup := backedUp(t)
			child := childtest.New(t, "restore", backup, path)
			stracetest.Wrap(t, child.Cmd, "-e", "trace=linkat,renameat", "-e", "inject="+at)
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
