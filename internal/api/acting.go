package api

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// act is one act on many items. It is held for some seconds, in which it can be undone. Then it changes the items page
// by page; each page is one transaction.
type act struct {
	id      uuid.UUID
	owner   string // name of the token
	request answer.ActRequest
	filter  ledger.Filter
	asked   string // the request as a command, for the journal
	begins  time.Time
	do      func(ctx context.Context, f ledger.Filter) (changed int64, err error)

	shown answer.BulkAct // the answer about the act; guarded by acts.mu
}

// seenBy reports whether the caller may see the act: it is the caller's own, or the caller is an admin.
func (x *act) seenBy(g access.Grant) bool {
	return x.owner == g.Name || g.May(access.Admin) && g.Kinds == nil
}

// over reports whether the act has ended: it is done, stopped or undone.
func (x *act) over() bool { return !time.Time(x.shown.Ended).IsZero() }

// acts are the acts of one server. They run one after the other. They are in memory only: when the server ends, an act
// that is held does not begin, and an act that runs stops. The journal records the changes that were made.
type acts struct {
	reader *ledger.Ledger

	mu   sync.Mutex
	all  []*act        // in the order in which they were asked for
	wake chan struct{} // has an entry if an act was added
}

const (
	maxActs  = 1000        // that are remembered
	actsKept = time.Hour   // after their end
	pageOf   = 500         // items of one transaction
	tryAgain = time.Second // pause while the ledger cannot be reached
)

func newActs(reader *ledger.Ledger) *acts { return &acts{reader: reader, wake: make(chan struct{}, 1)} }

// stamp is a time as answers have it.
func stamp(t time.Time) report.Time { return report.Time(t.UTC()) }

// find looks for an act that the caller may see.
func (r *acts) find(id uuid.UUID, g access.Grant) (*act, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.all {
		if x.id == id && x.seenBy(g) {
			return x, true
		}
	}
	return nil, false
}

// open are the acts that have not ended and that the caller may see.
func (r *acts) open(g access.Grant) (open []answer.BulkAct) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.all {
		if !x.over() && x.seenBy(g) {
			open = append(open, x.now())
		}
	}
	return open
}

// state is the present answer about an act.
func (r *acts) state(x *act) answer.BulkAct {
	r.mu.Lock()
	defer r.mu.Unlock()
	return x.now()
}

// now is the present answer about the act; acts.mu is held.
func (x *act) now() answer.BulkAct {
	shown := x.shown
	if shown.State == "held" && !time.Now().Before(x.begins) {
		shown.State = "waiting" // another act runs
	}
	return shown
}

// add keeps an act until it is due. Two requests with the same id, also at the same time, add one act.
func (r *acts) add(x *act) (answer.BulkAct, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := r.all[:0:0]
	for _, old := range r.all {
		if old.id == x.id {
			return answer.BulkAct{}, failure.Usage("conflict", "ask how far it is", "another act has this UUID")
		}
		if !old.over() || time.Since(time.Time(old.shown.Ended)) < actsKept {
			kept = append(kept, old)
		}
	}
	if len(kept) >= maxActs { // the oldest one that has ended is forgotten
		ended := slices.IndexFunc(kept, (*act).over)
		if ended < 0 {
			return answer.BulkAct{}, failure.Usage("too_many", "wait until some have ended", "%d acts are under way", len(kept))
		}
		kept = slices.Delete(kept, ended, ended+1)
	}
	x.shown.State = "held"
	r.all = append(kept, x)
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return x.shown, nil
}

// stop undoes an act that has not begun. An act that runs stops after its page.
func (r *acts) stop(x *act) (answer.BulkAct, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch x.shown.State {
	case "held":
		x.shown.State, x.shown.Ended = "undone", stamp(time.Now())
	case "running":
		x.shown.State = "stopping"
	case "done", "failed":
		return x.shown, failure.Usage("conflict", "cancelled items are reopened, ready ones cancelled", "it has ended: %s",
			x.shown.State)
	}
	return x.shown, nil
}

// run runs acts until ctx ends.
func (r *acts) run(ctx context.Context) {
	for {
		x, wait := r.next()
		if x != nil {
			r.carryOut(ctx, x)
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-time.After(wait):
		}
	}
}

// next begins the act that has been due for longest. If none is due, it returns nil and how long to wait for the next.
func (r *acts) next() (*act, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var first *act
	for _, x := range r.all {
		if x.shown.State == "held" && (first == nil || x.begins.Before(first.begins)) {
			first = x
		}
	}
	if first == nil {
		return nil, time.Hour // an act that is added ends the wait
	}
	if wait := time.Until(first.begins); wait > 0 {
		return nil, wait
	}
	first.shown.State = "running"
	return first, 0
}

// carryOut goes through the items of an act. While the ledger cannot be reached, it waits.
func (r *acts) carryOut(ctx context.Context, x *act) {
	ctx = ledger.OneAct(ctx, x.asked)
	var from ledger.Mark
	for {
		changed, reached, done, err := r.page(ctx, x, from)
		unavailable := errors.Is(err, ledger.ErrUnavailable)
		if unavailable {
			select {
			case <-ctx.Done():
			case <-time.After(tryAgain):
			}
		}
		stop := r.count(x, changed) // a caller may ask during the pause
		switch {
		case ctx.Err() != nil:
			r.end(x, "stopped", nil)
			return
		case err != nil && !unavailable:
			r.end(x, "failed", err)
			return
		case err == nil && done:
			r.end(x, "done", nil)
			return
		case stop:
			r.end(x, "stopped", nil)
			return
		case !unavailable:
			from = reached
		}
	}
}

// page acts on the next items that match. done: there are no more of them, or the limit of the act is reached.
func (r *acts) page(ctx context.Context, x *act, from ledger.Mark) (changed int64, reached ledger.Mark, done bool,
	err error) {
	most := pageOf
	if limit := x.request.Limit; limit > 0 {
		if most = int(min(pageOf, limit-r.state(x).Changed)); most <= 0 {
			return 0, from, true, nil
		}
	}
	w := &ledger.Walk{Filter: x.filter, After: from, Time: partTime}
	var ids []int64
	for it, err := range r.reader.Walk(ctx, w) {
		if err != nil {
			return 0, from, false, err
		}
		if ids = append(ids, it.ID); len(ids) == most {
			break
		}
	}
	if len(ids) > 0 {
		changed, err = x.do(ctx, x.filter.And(ledger.IDs(ids...)))
	}
	return changed, w.Reached, len(ids) < most && !w.Cut, err
}

// count adds items that were changed, and reports whether a caller has asked the act to stop.
func (r *acts) count(x *act, changed int64) (stop bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x.shown.Changed += changed
	return x.shown.State == "stopping"
}

// end records how an act ended.
func (r *acts) end(x *act, state string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x.shown.State, x.shown.Ended = state, stamp(time.Now())
	if err != nil {
		p, _ := problemOf(err)
		x.shown.Error = p.Detail
	}
}
