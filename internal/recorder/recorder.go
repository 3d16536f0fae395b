// Package recorder records the history of a process. A Recorder is a ledger.Store that passes every call on. It writes
// claims, completions, renewals, starts and updates with their answers to a [history.Log]. It has a failpoint before
// and after each of these calls, and of Promote, Beat and Close. Prune, AddTallies and ForgetTallies have none. A chaos
// build of ledgerd works through a Recorder, and so do the clients of the harness.
package recorder

import (
	"context"
	"errors"
	"time"

	"github.com/ledgerd/ledgerd/internal/failpoint"
	"github.com/ledgerd/ledgerd/internal/history"
	"github.com/ledgerd/ledgerd/ledger"
)

// Recorder is a ledger.Store in front of another one.
type Recorder struct {
	ledger.Store
	log *history.Log
}

// New returns a recorder in front of a store.
func New(s ledger.Store, log *history.Log) *Recorder { return &Recorder{s, log} }

// call is a call that has begun.
type call struct {
	log  *history.Log
	line history.Line // of its beginning
}

// begin records that a call begins, and its arguments.
func (r *Recorder) begin(line history.Line) call {
	failpoint.Here(line.Op + ".before")
	line.Call, line.Phase, line.At = r.log.Call(), history.Begin, history.Now()
	r.log.Write(line)
	return call{r.log, line}
}

// end records the answer of a call.
func (c call) end(err error, items []history.Item) {
	line := history.Line{Call: c.line.Call, Phase: history.End, Op: c.line.Op, Items: items}
	if err != nil {
		line.Error, line.Unknown = err.Error(), errors.Is(err, ledger.ErrUnavailable) || errors.Is(err, context.Canceled) ||
			errors.Is(err, context.DeadlineExceeded)
	}
	c.log.Write(line)
	failpoint.Here(c.line.Op + ".after")
}

// Claim implements ledger.Store.
func (r *Recorder) Claim(ctx context.Context, g ledger.Grant) (ledger.Claimed, error) {
	k := r.beginClaim(g)
	got, err := r.Store.Claim(ctx, g)
	k.end(err, claimed(got))
	return got, err
}

func (r *Recorder) beginClaim(g ledger.Grant) call {
	return r.begin(history.Line{Op: history.OpClaim, Agent: g.Agent, Lock: g.LockID.String(), TTL: g.TTL})
}

// claimed returns the claimed items, for the end of a claim.
func claimed(got ledger.Claimed) []history.Item {
	recs := got.Records
	items := make([]history.Item, len(recs))
	for i := range recs {
		w := recs[i].Work
		items[i] = history.Item{ID: recs[i].ID, Lock: w.LockID.String(), Attempt: w.Attempt, Now: micro(w.LeasedAt),
			Until: micro(w.ExpiresAt), Due: micro(w.Due)}
	}
	return items
}

// Complete implements ledger.Store.
func (r *Recorder) Complete(ctx context.Context, conn ledger.Conn, c []ledger.Completion) ([]int64, error) {
	k := r.beginComplete(c)
	landed, err := r.Store.Complete(ctx, conn, c)
	k.end(err, completed(c, landed))
	return landed, err
}

func (r *Recorder) beginComplete(c []ledger.Completion) call {
	asked := make([]history.Item, len(c))
	for i, e := range c {
		asked[i] = history.Item{ID: e.ItemID, Lock: e.LockID.String(), Outcome: string(e.Outcome)}
	}
	return r.begin(history.Line{Op: history.OpComplete, Items: asked})
}

// completed returns the items whose completion took effect, for the end of a call.
func completed(c []ledger.Completion, landed []int64) []history.Item {
	locks := make(map[int64]string, len(c))
	for _, e := range c {
		locks[e.ItemID] = e.LockID.String()
	}
	items := make([]history.Item, len(landed))
	for i, id := range landed {
		items[i] = history.Item{ID: id, Lock: locks[id]}
	}
	return items
}

// CompleteAndClaim implements ledger.Store. It is recorded as two calls at the same time.
func (r *Recorder) CompleteAndClaim(ctx context.Context, c []ledger.Completion, g ledger.Grant) ([]int64,
	ledger.Claimed, error) {
	ends, claims := r.beginComplete(c), r.beginClaim(g)
	landed, got, err := r.Store.CompleteAndClaim(ctx, c, g)
	ends.end(err, completed(c, landed))
	claims.end(err, claimed(got))
	return landed, got, err
}

// Renew implements ledger.Store.
func (r *Recorder) Renew(ctx context.Context, ttl time.Duration, leases []ledger.LeaseRef) ([]ledger.Renewal, error) {
	k := r.begin(history.Line{Op: history.OpRenew, TTL: ttl, Items: references(leases)})
	renewed, err := r.Store.Renew(ctx, ttl, leases)
	items := make([]history.Item, len(renewed))
	for i, n := range renewed {
		items[i] = history.Item{ID: n.ItemID, Lock: n.LockID.String(), Now: micro(n.ExpiresAt.Add(-ttl)),
			Until: micro(n.ExpiresAt)}
	}
	k.end(err, items)
	return renewed, err
}

// Start implements ledger.Store.
func (r *Recorder) Start(ctx context.Context, ttl time.Duration, leases []ledger.LeaseRef) ([]int64, error) {
	asked := references(leases)
	locks := make(map[int64]string, len(leases))
	for _, a := range asked {
		locks[a.ID] = a.Lock
	}
	k := r.begin(history.Line{Op: history.OpStart, TTL: ttl, Items: asked})
	started, err := r.Store.Start(ctx, ttl, leases)
	items := make([]history.Item, len(started))
	for i, id := range started {
		items[i] = history.Item{ID: id, Lock: locks[id]}
	}
	k.end(err, items)
	return started, err
}

// Promote implements ledger.Store. It names no items, so it is not recorded.
func (r *Recorder) Promote(ctx context.Context, limit int) ([]string, time.Time, error) {
	failpoint.Here("promote.before")
	defer failpoint.Here("promote.after")
	return r.Store.Promote(ctx, limit)
}

// Beat implements ledger.Store.
func (r *Recorder) Beat(ctx context.Context, a ledger.Agent, ttl time.Duration) error {
	failpoint.Here("beat.before")
	defer failpoint.Here("beat.after")
	return r.Store.Beat(ctx, a, ttl)
}

// Close implements ledger.Store.
func (r *Recorder) Close() error {
	failpoint.Here("close.before")
	defer failpoint.Here("close.after")
	return r.Store.Close()
}

func references(leases []ledger.LeaseRef) []history.Item {
	items := make([]history.Item, len(leases))
	for i, l := range leases {
		items[i] = history.Item{ID: l.ItemID, Lock: l.LockID.String()}
	}
	return items
}

// micro returns a time in the form of histories; the zero time is 0.
func micro(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}
