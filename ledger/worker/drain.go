package worker

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// Report counts what one Drain did and left.
type Report struct {
	Outcomes map[ledger.Outcome]int64 // of ended attempts, as the ledger wrote them down
	Dead     int64                    // attempts that failed their round for good: the item is dead, or recurring and waits for its next round
	Doubt    int64                    // … in doubt
	// Left in the ledger of the kinds and the shard worked; beyond ledger.StandingCap the
	// first two are the cap.
	Ready   int64     // to be claimed: their kind is paused or held back by limits, or Drain was ended
	Waiting int64     // due later
	Held    int64     // leased by others
	NextDue time.Time // of what is left; zero if nothing
}

// Drain works until nothing is left to do now, and reports what this call did: at some instant of
// the call nothing of its kinds and shard was ready, leased by a program, or due within patience. What other programs hold is waited for, however long, since it
// may come back: they finish it, or their leases expire. Leases of persons are not waited for, nor
// is a kind that is paused, or whose handler takes nothing for longer than patience and a minute.
// What limits of its kind hold back is waited for as what is due later: by a rate, if the next may be
// claimed within patience; for want of a place, unless people have all places.
// Drain ends early, as Run does, when ctx ends.
func (w *Worker) Drain(ctx context.Context, patience time.Duration) (Report, error) {
	var left []ledger.Standing
	err := w.work(ctx, func(ctx context.Context) { left = w.untilQuiet(ctx, patience) })
	r := w.tally.report()
	if left == nil && err == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewellTime)
		defer cancel()
		left, err = w.standings(ctx)
	}
	for _, s := range left {
		r.Ready += s.Ready
		r.Waiting += s.Waiting
		r.Held += s.Held + s.Persons
		if !s.NextDue.IsZero() && (r.NextDue.IsZero() || s.NextDue.Before(r.NextDue)) {
			r.NextDue = s.NextDue
		}
	}
	return r, err
}

// untilQuiet waits until there is nothing to wait for and returns what is left then; nil if ctx
// or the quota ended before.
func (w *Worker) untilQuiet(ctx context.Context, patience time.Duration) []ledger.Standing {
	for ctx.Err() == nil {
		if w.done() {
			return nil
		}
		if w.idle() {
			left, err := w.quiet(ctx, patience)
			if !w.failed("standing", err) && left != nil {
				return left
			}
		}
		wait(ctx, w.look, jitter(w.config.Poll))
	}
	return nil
}

// quiet returns what is left if there is nothing to wait for, else nil. One kind's standing is one
// snapshot. With several kinds an item could be seen in none of them: worked in one before that is
// looked at, it may emit another into a kind that was looked at before. So all are looked at
// twice, and no attempt may have ended since the first look. What is held back by limits is asked by
// claiming, between the two looks: the places may have become free since.
func (w *Worker) quiet(ctx context.Context, patience time.Duration) ([]ledger.Standing, error) {
	first, err := w.standings(ctx)
	if err != nil || !w.allQuiet(first, patience) {
		return nil, err
	}
	if len(w.lanes) == 0 || len(w.lanes) == 1 && first[0].Ready == 0 {
		return first, nil
	}
	for i, l := range w.lanes {
		if first[i].Ready == 0 || l.paused(patience) {
			continue
		}
		if got, err := l.probe(); got > 0 || err != nil {
			return nil, err
		}
	}
	second, err := w.standings(ctx)
	if err != nil || !w.allQuiet(second, patience) {
		return nil, err
	}
	counts, err := w.config.Ledger.Counts(ctx, first[0].Now)
	if err != nil {
		return nil, err
	}
	for _, c := range counts {
		if c.Done+c.Failed > 0 && w.config.Handlers[c.Kind] != nil {
			return nil, nil
		}
	}
	return second, nil
}

// standings of all kinds, each of the worker's shard, in the order of the lanes.
func (w *Worker) standings(ctx context.Context) ([]ledger.Standing, error) {
	all := make([]ledger.Standing, len(w.lanes))
	for i, l := range w.lanes {
		s, err := w.config.Ledger.StandingIn(ctx, l.kind, w.config.Shard)
		if err != nil {
			return nil, err
		}
		all[i] = s
	}
	return all, nil
}

func (w *Worker) allQuiet(all []ledger.Standing, patience time.Duration) bool {
	for i, l := range w.lanes {
		s := all[i]
		soon := s.Ready > 0 && !l.kept(patience) || !s.NextDue.IsZero() && !s.NextDue.After(s.Now.Add(patience))
		if s.Held > 0 || soon && !l.paused(patience) {
			return false
		}
	}
	return true
}

// handlerPatience is the least time for which a handler that takes nothing is waited for: its
// process may only be starting again.
const handlerPatience = time.Minute

// paused says whether the lane takes nothing for longer than one should wait.
func (l *lane) paused(patience time.Duration) bool {
	limit, until := l.limit()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.policy.Paused || limit == 0 && time.Until(until) > max(patience, handlerPatience)
}

// kept says whether limits keep what is ready for longer than one should wait, if no program has any of
// the kind.
func (l *lane) kept(patience time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.heldUntil.IsZero() {
		return time.Until(l.heldUntil) > patience
	}
	return l.full
}

// tally counts what one Run or Drain did.
type tally struct {
	mu     sync.Mutex
	counts Report
}

func (t *tally) add(e ledger.Ending) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts.Outcomes == nil {
		t.counts.Outcomes = map[ledger.Outcome]int64{}
	}
	t.counts.Outcomes[e.Recorded]++
	switch e.Round {
	case ledger.RoundFailed:
		t.counts.Dead++
	case ledger.RoundDoubt:
		t.counts.Doubt++
	}
}

func (t *tally) report() Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.counts
	r.Outcomes = maps.Clone(r.Outcomes)
	return r
}
