package storetest

import (
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// LimitsOfCalls are the limits of kind l.
var LimitsOfCalls = scheduler.Limits{MaxRunning: 100_000, MaxRunningPerShardKey: 1, Burst: 10_000,
	RatePerShardKey: scheduler.Rate{Count: 1, Per: time.Hour}, Rate: scheduler.Rate{Count: 1_000_000, Per: time.Second}}

// LimitedCalls are the hot path of kind l, in an order in which each call finds what it needs. The kind has limits
// and may have many items that they hold back.
func (w *Workload) LimitedCalls() []Call {
	ctx := w.T.Context()
	w.ok(w.Ledger.SetKind(ctx, "test", ledger.Kind{Name: "l", Limits: LimitsOfCalls}))
	var named []int64
	add := func() {
		items := w.items("l", bounds.MinPriority, time.Time{})
		for i := range items {
			items[i].ShardKey = fmt.Sprint("a", i) // keys that sort before all others
		}
		named = w.add(items)
	}
	claim := []string{IndexReady, IndexLanes, IndexRunning, IndexLeased} // IndexLeased only now and then
	const filed = 1000                                                   // the most rows that one claim files
	const beside = 300                                                   // rows that other calls have left
	claimed := func(want int) func() {
		return func() {
			w.T.Helper()
			w.Claim(ledger.Claim{Kind: "l"}, want)
		}
	}
	return []Call{
		{Name: "claim under limits", Indexes: claim, Rows: filed, Before: add, Run: claimed(w.Batch)},
		{Name: "claim what is held back", Indexes: claim, Rows: filed, Before: add, Run: claimed(0)},
		{Name: "claim named items under limits", Indexes: claim, Rows: filed, Run: func() {
			w.Claim(ledger.Claim{Kind: "l", Items: named}, 0)
		}},
		{Name: "finish under limits", Rows: beside, Run: func() {
			w.Finish(func(int) ledger.Result { return ledger.Done(nil) })
		}},
		{Name: "claim what has become free", Indexes: claim, Rows: filed, Run: claimed(1)},
		{Name: "how limits stand", Indexes: []string{IndexRunning}, Rows: beside, Run: func() {
			_, err := w.Store.LimitUsage(ctx, "l", "a1")
			w.ok(err)
		}},
		{Name: "claim of another kind", Indexes: []string{IndexReady}, Rows: beside, Before: func() {
			w.add(w.items("k", bounds.MinPriority, time.Time{}))
		}, Run: func() { w.Claim(ledger.Claim{}, w.Batch) }},
		{Name: "standing", Indexes: []string{IndexReady, IndexWaiting, IndexLeased, IndexStuck, IndexLanes},
			Counts: true, Run: func() {
				_, err := w.Ledger.Standing(ctx, "l")
				w.ok(err)
			}},
	}
}
