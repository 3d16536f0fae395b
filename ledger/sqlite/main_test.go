package sqlite_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/childtest"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

func TestMain(m *testing.M) { childtest.Main(m) }

func newPath(t testing.TB) string { return filepath.Join(t.TempDir(), "ledger.db") }

func mustOpen(t testing.TB, path string, o sqlite.Options) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, o)
	must.OK(t, err)
	t.Cleanup(func() { must.OK(t, s.Close()) })
	return s
}

func newLedger(t testing.TB) (*ledger.Ledger, string) {
	path := newPath(t)
	return ledger.New(mustOpen(t, path, sqlite.Options{}), ledger.Options{}), path
}

func numbered(n int) []ledger.NewItem {
	items := make([]ledger.NewItem, n)
	for i := range items {
		items[i] = ledger.NewItem{Kind: "k", Key: fmt.Sprint(i)}
	}
	return items
}

// verify fails the test for every broken invariant.
func verify(t testing.TB, l *ledger.Ledger) {
	t.Helper()
	for v, err := range l.Verify(t.Context()) {
		must.OK(t, err)
		t.Errorf("verify: %s, item %d: %s", v.Rule, v.ItemID, v.Text)
	}
}

// within fails the test if fn takes over a minute longer than d, the time that it may take. The minute is for slow
// machines.
func within(t testing.TB, d time.Duration, fn func()) {
	t.Helper()
	start := time.Now()
	if fn(); time.Since(start) > d+time.Minute {
		t.Errorf("took %v, must take %v at most", time.Since(start), d)
	}
}
