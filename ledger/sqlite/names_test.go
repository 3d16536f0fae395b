package sqlite_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/finding"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

// A file with two names would have two logs: every way to open it refuses both names until one is gone.
func TestTwoNames(t *testing.T) {
	l, path := newLedger(t)
	must.Do(t)(l.Add(t.Context(), numbered(1)...))
	second := path + ".link"
	must.OK(t, os.Link(path, second))
	for _, name := range []string{path, second} {
		_, open := sqlite.Open(t.Context(), name, sqlite.Options{MustExist: true})
		_, _, status := sqlite.Status(t.Context(), name)
		for _, err := range []error{open, status} {
			if !errors.Is(err, ledger.ErrInvalid) || !strings.Contains(err.Error(), name+" has 2 names") {
				t.Errorf("%s: %v", name, err)
			}
		}
		all, sound := sqlite.Examine(t.Context(), name)
		last := all[len(all)-1]
		if sound || last.Level != finding.LevelProblem || !strings.Contains(last.What, "has 2 names") {
			t.Errorf("examine %s: %v %+v", name, sound, last)
		}
	}
	must.OK(t, os.Remove(second))
	again := ledger.New(mustOpen(t, path, sqlite.Options{MustExist: true}), ledger.Options{})
	if n, err := again.Count(t.Context(), ledger.Filter{}); n != 1 || err != nil {
		t.Errorf("with one name again: %d items, %v", n, err)
	}
}
