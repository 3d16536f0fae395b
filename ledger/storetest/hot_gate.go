package storetest

import (
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
)

// GatedCalls are the hot path of kind g, whose items need resources, of which it may have many: in an
// order in which each finds what it needs. sweep makes the next claim look for items that were not woken.
func (w *Workload) GatedCalls(sweep func()) []Call {
	ctx := w.T.Context()
	needing := func(name func(i int) []string) {
		items := w.items("g", bounds.MinPriority, time.Time{})
		for i := range items {
			items[i].Resources = name(i)
		}
		w.add(items)
	}
	claim := []string{IndexReady, IndexGated, IndexPassed, IndexParked} // the last one now and then
	wake := []string{IndexParked, IndexHeld}
	const examined = 300 // a claim looks at 100 at least, wherever they are, and takes what it was asked for
	claimed := func(want int) func() {
		return func() {
			w.T.Helper()
			w.Claim(ledger.Claim{Kind: "g"}, want)
		}
	}
	return []Call{
		{Name: "add items with resources", Indexes: []string{IndexIdentity}, Run: func() {
			needing(func(i int) []string { return []string{fmt.Sprint("own ", i), fmt.Sprint("other ", i)} })
		}},
		{Name: "claim items with resources", Indexes: claim, Rows: examined, Run: claimed(w.Batch)},
		{Name: "claim what others hold", Indexes: claim, Rows: examined, Before: func() {
			needing(func(i int) []string { return []string{fmt.Sprint("own ", i)} })
		}, Run: claimed(0)},
		{Name: "sweep", Indexes: append(claim, wake...), Rows: examined, Before: sweep, Run: claimed(0)},
		{Name: "finish with resources", Indexes: wake, Rows: examined, Run: func() {
			w.Finish(func(int) ledger.Result { return ledger.Done(nil) })
		}},
		{Name: "claim what was woken", Indexes: claim, Rows: examined, Run: claimed(1)},
		{Name: "who holds resources", Run: func() {
			_, err := w.Ledger.Holds(ctx, "own 1", "other 1", "none")
			w.ok(err)
		}},
		{Name: "standing", Indexes: []string{IndexReady, IndexWaiting, IndexLeased, IndexStuck, IndexGated, IndexPassed},
			Counts: true, Run: func() {
				_, err := w.Ledger.Standing(ctx, "g")
				w.ok(err)
			}},
	}
}
