package worker

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// Report counts the attempts that one Drain ended, and the items that it left.
type Report struct {
	Outcomes map[ledger.Outcome]int64 // of ended attempts, as the ledger recorded them
	// Dead counts attempts after which the round has failed for good. The item is dead, or it is recurring and
	// waits for its next round.
	Dead  int64
	Doubt int64 // attempts after which the item is in doubt
	// The rest counts items that are left in the ledger, of the kinds and the shard of the worker. Ready and Waiting
	// are counted up to stats.StandingCap for each kind.
	Ready   int64     // ready, but not claimed: the kind is paused, limits hold them back, or Drain ended early
	Waiting int64     // due later
	Held    int64     // leased by other agents
	NextDue time.Time // when the next item is due; zero if no item waits
}

// Drain works until nothing is left to do now, and reports what this call did. Nothing is left if at one instant of
// the call no item of its kinds and shard is ready, leased by a program, or due within patience. Drain ends early, as
// Run does, when ctx ends.
//
// Drain waits for:
//   - items that other programs hold, however long, because they may come back: the leases end or expire
//   - items that a rate of their kind holds back, if the next one may be claimed within patience or within a minute
//   - items that the other limits of their kind hold back, unless persons hold all places
//
// Drain does not wait for:
//   - items that persons hold
//   - items of a kind that is paused
//   - items of a kind whose handler takes nothing for longer than patience and longer than a minute
func (w *Worker) Drain(ctx context.Context, patience time.Duration) (Report, error) {
	var left []stats.Standing
	err := w.work(ctx, func(ctx context.Context) { left = w.untilQuiet(ctx, patience) })
	r := w.results.report()
	if left == nil && err == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewellTime)
		defer cancel()
		left, err = w.standings(ctx, w.lanes())
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

// untilQuiet waits until no item can become ready within patience, and returns the standings at that time. It returns
// nil if ctx or the quota ends earlier.
func (w *Worker) untilQuiet(ctx context.Context, patience time.Duration) []stats.Standing {
	for ctx.Err() == nil {
		if w.done() {
			return nil
		}
		if w.idle() {
			left, err := w.standingsIfQuiet(ctx, patience)
			if !w.failed("standing", err) && left != nil {
				return left
			}
		}
		wait(ctx, w.look, jitter(w.config.Poll))
	}
	return nil
}

// standingsIfQuiet returns the standings if there is nothing to wait for, else nil. The standings of the kinds are read
// one after the other. Meanwhile an attempt may end and emit an item of a kind that was already read. So all kinds are
// read twice, and the answer counts only if no attempt ended after the first read began. Between the reads it tries to
// claim, because only a claim shows whether limits hold items back.
func (w *Worker) standingsIfQuiet(ctx context.Context, patience time.Duration) ([]stats.Standing, error) {
	lanes := w.lanes()
	first, err := w.standings(ctx, lanes)
	if err != nil || !allQuiet(lanes, first, patience) {
		return nil, err
	}
	if len(lanes) == 0 || len(lanes) == 1 && first[0].Ready == 0 {
		return first, nil
	}
	for i, l := range lanes {
		if first[i].Ready == 0 || l.claimsNothing(patience) {
			continue
		}
		if got, err := l.probe(); got > 0 || err != nil {
			return nil, err
		}
	}
	second, err := w.standings(ctx, lanes)
	if err != nil || !allQuiet(lanes, second, patience) {
		return nil, err
	}
	counts, err := w.config.Ledger.Counts(ctx, first[0].Now)
	if err != nil {
		return nil, err
	}
	for _, c := range counts {
		if c.Done+c.Failed > 0 && slices.ContainsFunc(lanes, func(l *lane) bool { return l.kind == c.Kind }) {
			return nil, nil
		}
	}
	return second, nil
}

// standings returns the standings of all kinds, each of the worker's shard, in the order of the lanes.
func (w *Worker) standings(ctx context.Context, lanes []*lane) ([]stats.Standing, error) {
	all := make([]stats.Standing, len(lanes))
	for i, l := range lanes {
		s, err := w.config.Ledger.StandingIn(ctx, l.kind, w.config.Shard)
		if err != nil {
			return nil, err
		}
		all[i] = s
	}
	return all, nil
}

// allQuiet reports whether a drain has nothing to wait for; all are the standings of the lanes.
func allQuiet(lanes []*lane, all []stats.Standing, patience time.Duration) bool {
	for i, l := range lanes {
		s := all[i]
		soon := s.Ready > 0 && !l.heldByLimits(patience) || !s.NextDue.IsZero() && !s.NextDue.After(s.Now.Add(patience))
		if s.Held > 0 || soon && !l.claimsNothing(patience) {
			return false
		}
	}
	return true
}

// leastPatience is the shortest time for which a drain waits for a rate, or for a handler that takes no items, since
// its process may be starting. With a shorter time a drain under a rate would end between two items.
const leastPatience = time.Minute

// claimsNothing reports whether the lane claims nothing for longer than a drain waits.
func (l *lane) claimsNothing(patience time.Duration) bool {
	limit, until := l.limit()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.policy.Paused || limit == 0 && time.Until(until) > max(patience, leastPatience)
}

// heldByLimits reports whether limits hold the ready items back for longer than a drain waits. The caller knows that no
// program has leased an item of the kind.
func (l *lane) heldByLimits(patience time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.heldUntil.IsZero() {
		return time.Until(l.heldUntil) > max(patience, leastPatience)
	}
	return l.full
}

// results counts the ended attempts of one Run or Drain.
type results struct {
	mu     sync.Mutex
	counts Report
}

func (r *results) add(e ledger.Ending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts.Outcomes == nil {
		r.counts.Outcomes = map[ledger.Outcome]int64{}
	}
	r.counts.Outcomes[e.Recorded]++
	switch e.Round {
	case ledger.RoundFailed:
		r.counts.Dead++
	case ledger.RoundDoubt:
		r.counts.Doubt++
	}
}

func (r *results) report() Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := r.counts
	counts.Outcomes = maps.Clone(counts.Outcomes)
	return counts
}
