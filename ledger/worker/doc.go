// Package worker runs the claim–handle–finish loop of a ledger in any Go program.
//
//	w, err := worker.New(worker.Config{Ledger: l, Handlers: map[string]worker.Handler{
//		"thumb": worker.JSON(func(ctx context.Context, lease *ledger.Lease, p thumb) ledger.Result {
//			if err := resize(ctx, p.Path); err != nil {
//				return ledger.Fail(err)
//			}
//			return ledger.Done(nil)
//		}),
//	}})
//	…
//	err = w.Run(ctx)
//
// # How an item goes through
//
// Each kind has a lane: one goroutine that claims, one that hands items to the handler. What was
// claimed and not begun lies in the lane's buffer, which holds about half a second of work, as
// measured: a busy worker claims a thousand items at a time, one whose items take minutes claims
// what it can begin now and leaves the rest to others. What lies there longer than a quarter of
// the lease is handed back.
//
// Endings of all lanes are finished together: at once when there is little to do, in batches as
// large as gather during the call before when there is much.
//
// # Leases
//
// Leases are renewed at a third of their time, until the end of the item is recorded. A lease is
// trusted only until the start of the call that granted or renewed it, plus its time, minus a
// tenth, by this process's monotonic clock; past it the handler's context ends. An end that comes
// late is still reported: the ledger takes it unless somebody else was granted the item.
//
// Of kinds with ledger.OnLostDoubt nothing is buffered: as many items are claimed as can begin, and
// their start is committed before the handler sees them.
//
// # Time
//
// The end of a timeout is the end of the handler's context. A handler that returns an error after
// it has failed with code "timeout", and the kind's OnLost says what that means, since the work may
// have been cut off anywhere. A Func that does not return cannot be killed: it keeps its place among
// the Concurrency, but overtime (30 s) after its deadline its lease is no longer renewed, so that
// the ledger gives the item to somebody else.
//
// # Goroutines
//
// Two per kind, and per worker: two that finish, one that watches leases and never waits, one that
// renews them, one each to promote, expire, prune and beat, and two that listen for hints. All
// have ended when Run or Drain returns, except those of a Func that ignored the end of its context.
package worker
