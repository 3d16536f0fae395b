package postgres

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// This file coalesces claims of few items: those that are called while two others of the same items run wait, and then
// share a statement and its commit. Each has its own agent, lock_id and row in ledger_leases.

const (
	claimsAtOnce = 2  // statements of claims of the same items that run at a time
	maxOfOne     = 8  // leases: a claim of more neither waits nor shares a statement
	maxOfAll     = 64 // leases that claims of one statement ask for together
)

// waitingClaim is a claim that waits to be coalesced.
type waitingClaim struct {
	ctx   context.Context
	g     ledger.Grant
	knew  bool // it was known that the kind has or had limits
	got   ledger.Claimed
	err   error
	again bool          // rows were left out, but not all, and it got none: it has to run once more
	panic any           // of the statement; nil: none
	ended chan struct{} // closed when the fields above are set
}

// sameItems is what claims have in common that can share a statement.
type sameItems struct {
	kind  string
	shard scheduler.Shard
	ttl   time.Duration
	floor int64
}

// coalescer has the claims that may be coalesced.
type coalescer struct {
	mu sync.Mutex
	of map[sameItems]*claimQueue
}

type claimQueue struct {
	running int // statements
	waiting []*waitingClaim
}

// mayCoalesce reports whether a claim may share a statement with others.
func mayCoalesce(g ledger.Grant) bool { return len(g.Items) == 0 && !g.Resume && g.Limit <= maxOfOne }

// enter reports whether a claim is to run at once, by itself. Otherwise w waits.
func (c *coalescer) enter(at sameItems, w *waitingClaim) (now bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.of[at]
	if q == nil {
		if c.of == nil {
			c.of = map[sameItems]*claimQueue{}
		}
		q = &claimQueue{}
		c.of[at] = q
	}
	if now = q.running < claimsAtOnce; now {
		q.running++
	} else {
		q.waiting = append(q.waiting, w)
	}
	return now
}

// next returns the claims of the statement that runs after one has ended. If none waits, fewer statements run from now
// on.
func (c *coalescer) next(at sameItems) (together []*waitingClaim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.of[at]
	n, leases := 0, 0
	for n < len(q.waiting) && leases+q.waiting[n].g.Limit <= maxOfAll {
		leases += q.waiting[n].g.Limit
		n++
	}
	if n > 0 {
		together, q.waiting = q.waiting[:n:n], q.waiting[n:]
		return together
	}
	if q.running--; q.running == 0 {
		delete(c.of, at)
	}
	return nil
}

// leave takes out a claim, if it waits still.
func (c *coalescer) leave(at sameItems, w *waitingClaim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q := c.of[at]; q != nil {
		q.waiting = slices.DeleteFunc(q.waiting, func(o *waitingClaim) bool { return o == w })
	}
}

// coalesce claims at once, or together with others. If ctx ends while the statement runs, it is not known whether the
// claim has leased items, as with every claim.
func (s *Store) coalesce(ctx context.Context, g ledger.Grant, knew bool) (ledger.Claimed, error) {
	at := sameItems{g.Kind, g.Shard, g.TTL, g.Floor}
	w := &waitingClaim{ctx: ctx, g: g, knew: knew, ended: make(chan struct{})}
	if s.claims.enter(at, w) {
		defer func() {
			if together := s.claims.next(at); together != nil {
				go s.claimWaiting(at, together)
			}
		}()
		return s.claimOne(w)
	}
	select {
	case <-w.ended:
	case <-ctx.Done():
		s.claims.leave(at, w)
		select {
		case <-w.ended: // both have happened: what it has leased must not be lost
		default:
			return ledger.Claimed{}, explain(ctx, s.name, ctx.Err())
		}
	}
	switch {
	case w.panic != nil:
		panic(w.panic) // in the goroutine of the call
	case w.again:
		return s.claimOne(w)
	}
	return w.got, w.err
}

// claimOne runs a claim by itself.
func (s *Store) claimOne(w *waitingClaim) (ledger.Claimed, error) {
	got, _, err := s.claim(w.ctx, w.g, nil, nil, w.knew)
	return got, err
}

// claimWaiting runs claims together, then those that have come meanwhile, until none waits.
func (s *Store) claimWaiting(at sameItems, together []*waitingClaim) {
	for ; together != nil; together = s.claims.next(at) {
		s.claimTogether(together)
		for _, w := range together {
			close(w.ended)
		}
	}
}

// claimTogether runs claims in one statement. It ends when the time of one of them is over, or the contexts of all have
// ended: without a claim that has gone, the statement could lease items to it later than its caller expects.
func (s *Store) claimTogether(together []*waitingClaim) {
	defer func() {
		if p := recover(); p != nil {
			for _, w := range together {
				w.panic = p
			}
		}
	}()
	ctx, cancel := context.WithCancel(context.WithoutCancel(together[0].ctx))
	defer cancel()
	var left atomic.Int64
	left.Store(int64(len(together)))
	for _, w := range together {
		if until, is := w.ctx.Deadline(); is {
			var end context.CancelFunc
			ctx, end = context.WithDeadline(ctx, until)
			defer end()
		}
		defer context.AfterFunc(w.ctx, func() {
			if left.Add(-1) == 0 {
				cancel()
			}
		})()
	}
	g := together[0].g
	got, cut, err := s.claim(ctx, g, nil, together, false)
	for _, w := range together {
		w.got.More, w.err = got.More && !w.knew, err
		if err != nil && ctx.Err() != nil && w.ctx.Err() == nil { // the time of another one was over
			w.err = explain(w.ctx, s.name, errUnknownFate)
		}
		for _, r := range got.Records {
			if r.Work.LockID == w.g.LockID {
				w.got.Records = append(w.got.Records, r)
			}
		}
		n := len(w.got.Records)
		if w.again = cut && n == 0; n > w.g.Limit { // cannot happen; if it does, no item may be worked
			w.got, w.err = ledger.Claimed{}, fmt.Errorf("postgres: a claim of %d leased %d items", w.g.Limit, n)
		}
	}
}

// share makes a claim that of several ones, without those whose contexts have ended. It fails if none is left.
func (c *claim) share(together []*waitingClaim) error {
	if together == nil {
		return nil
	}
	c.g.Limit = 0
	for _, w := range together {
		if w.ctx.Err() == nil {
			c.coalesced = append(c.coalesced, w)
			c.g.Limit += w.g.Limit
		}
	}
	if c.coalesced == nil {
		return context.Canceled
	}
	c.dest = append(c.dest, &c.lock)
	return nil
}

// holders returns the agent and the lock_id of each row that claims lease together: those of the first claim as often
// as its limit, then those of the second one, and so on.
func holders(together []*waitingClaim) (agents []string, locks []pgtype.UUID) {
	for _, w := range together {
		agents = append(agents, slices.Repeat([]string{w.g.Agent}, w.g.Limit)...)
		locks = append(locks, slices.Repeat([]pgtype.UUID{pgUUID(w.g.LockID)}, w.g.Limit)...)
	}
	return agents, locks
}

// holder returns the agent of the claim with a lock_id.
func holder(together []*waitingClaim, lock uuid.UUID) string {
	i := slices.IndexFunc(together, func(w *waitingClaim) bool { return w.g.LockID == lock })
	return together[i].g.Agent
}
