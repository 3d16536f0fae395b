// Package exclusivetest checks that resources were used by one at a time. It is apart from package storetest, which
// brings much that a test of a program would start with every process.
package exclusivetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// Check checks, by what the ledger has written down with the database's clock, that no two
// attempts overlapped of items that need one resource, and returns how many attempts it looked at.
func Check(ctx context.Context, t testing.TB, l *ledger.Ledger) (attempts int) {
	t.Helper()
	type span struct {
		from, to time.Time
		what     string
	}
	used := map[string][]span{}
	for it, err := range l.List(ctx, ledger.Filter{}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		ended, err := l.Attempts(ctx, it.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range ended {
			if a.LeasedAt.IsZero() {
				continue
			}
			attempts++
			for _, name := range it.Resources {
				used[name] = append(used[name], span{a.LeasedAt, a.FinishedAt, fmt.Sprintf("%d.%d (%s)", it.ID, a.Attempt,
					a.Outcome)})
			}
		}
	}
	for name, spans := range used {
		slices.SortFunc(spans, func(a, b span) int { return cmp.Or(a.from.Compare(b.from), a.to.Compare(b.to)) })
		for i := 1; i < len(spans); i++ {
			if a, b := spans[i-1], spans[i]; b.from.Before(a.to) {
				t.Errorf("resource %s: %s began %v before %s ended", name, b.what, a.to.Sub(b.from), a.what)
			}
		}
	}
	return attempts
}
