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
// # From claim to result
//
// Two goroutines work for each kind: one claims items, the other hands them to the handler. An item
// that is claimed and has not begun lies in the buffer of its kind. The buffer holds about half a
// second of work, by the measured rate. So a busy worker claims a thousand items at a time. A worker
// whose items take minutes claims what it can begin now and leaves the rest to others.
// An item that has been in the buffer for longer than a quarter of the lease is handed back.
//
// The ends of the items of all kinds are recorded together. When there is little to do, an end is
// recorded at once. When there is much to do, all ends that come during one call are the batch of
// the next call.
//
// # Kinds
//
// Take adds a kind to a running worker, and Drop removes one: for handlers that are ready later than others, or that
// are replaced. Drop does for one kind what the end of Run does for all.
//
// # Leases
//
// A lease is renewed after a third of its time, until the end of the item is recorded. The worker
// trusts a lease for nine tenths of its time. The time counts from the start of the call that granted
// or renewed the lease, by the monotonic clock of this process. After that the context of the handler
// ends. A later end is still reported: the ledger takes it unless another agent has leased the item.
//
// Items of a kind with ledger.OnLostDoubt are not buffered. As many are claimed as can begin, and
// their start is committed before the handler gets them.
//
// # Timeouts
//
// When the timeout of an attempt is over, the context of the handler ends. If the handler returns an
// error after that, the attempt has failed with code "timeout". The work may have been cut off
// anywhere, so the kind's OnLost decides what follows. A Func that does not return cannot be killed,
// and it still counts for Concurrency. 30 s after its deadline its lease is no longer renewed, so
// that another agent can claim the item.
//
// # Goroutines
//
// There are two goroutines for each kind. A worker has these besides:
//   - two that record ends
//   - one that watches the leases and never waits for the ledger, and one that renews them
//   - one each that makes due items ready, takes back expired leases, prunes, sends heartbeats, and
//     writes tallies
//   - two that receive notifications of items that may have become ready
//   - one that waits for an error after which the worker cannot go on
//
// In a quiet worker one goroutine makes due items ready and takes back expired leases. It renews, sends and receives
// nothing.
//
// All have ended when Run or Drain returns, except those of a Func that ignored the end of its context.
package worker
