package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger/act"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// Get returns an item by id, or ErrNotFound.
func (l *Ledger) Get(ctx context.Context, id int64) (Item, error) {
	it, _, _, err := l.record(ctx, IDs(id))
	return it, err
}

// Find returns an item by identity, or ErrNotFound.
func (l *Ledger) Find(ctx context.Context, kind, scope, key string) (Item, error) {
	if key == "" {
		return Item{}, ErrNotFound
	}
	it, _, _, err := l.record(ctx, Filter{Kinds: []string{kind}, Scopes: []string{scope}, Key: key})
	return it, err
}

// record returns the first item that matches, as an Item and as a Record, and the time of the database's clock.
func (l *Ledger) record(ctx context.Context, f Filter) (Item, *Record, time.Time, error) {
	recs, err := l.store.Records(ctx, RecordQuery{Filter: f, Limit: 1})
	if err == nil && len(recs) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Item{}, nil, time.Time{}, err
	}
	now, err := l.store.Now(ctx)
	return recs[0].Item(now), &recs[0], now, err
}

// Attempts returns the ended attempts of an item, oldest first.
func (l *Ledger) Attempts(ctx context.Context, id int64) ([]Attempt, error) {
	return l.attempts(ctx, id, func() ([]Attempt, error) { return l.store.Attempts(ctx, id) })
}

// AttemptsBefore returns up to limit ended attempts of an item, newest first: those with a number below before, or all
// if before is 0. It reads no others.
func (l *Ledger) AttemptsBefore(ctx context.Context, id, before int64, limit int) ([]Attempt, error) {
	if err := checkLimit(limit); err != nil {
		return nil, err
	}
	return l.attempts(ctx, id, func() ([]Attempt, error) { return l.store.AttemptsBefore(ctx, id, before, limit) })
}

// attempts reads attempts of an item and names their rounds.
func (l *Ledger) attempts(ctx context.Context, id int64, read func() ([]Attempt, error)) ([]Attempt, error) {
	recs, err := l.store.Records(ctx, RecordQuery{Filter: IDs(id), Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(recs) == 0 {
		return nil, ErrNotFound
	}
	attempts, err := read()
	for i := range attempts {
		attempts[i].nameRound(recs[0].Every, recs[0].Zone)
	}
	return attempts, err
}

// LastOutput returns the output of the newest completed round of an item; for a recurring item that is usually
// the period before. It is nil if there is no such item, no round was completed, that round had no output, or the
// output was pruned.
func (l *Ledger) LastOutput(ctx context.Context, id int64) ([]byte, error) {
	return l.store.LastOutput(ctx, id)
}

// List yields the items that match and have an id above after, in id order, reading in pages.
func (l *Ledger) List(ctx context.Context, f Filter, after int64) iter.Seq2[Item, error] {
	return l.Walk(ctx, &Walk{Filter: f, After: Mark{ItemID: after}})
}

// Known reports for each identity whether there is such an item: in any state, also when its history was pruned.
func (l *Ledger) Known(ctx context.Context, keys ...Identity) ([]bool, error) {
	if len(keys) > bounds.MaxBatch {
		return nil, &InvalidError{Field: "keys", Reason: number.Sprintf("%d, at most %d", len(keys), bounds.MaxBatch)}
	}
	asked := make([]Identity, 0, len(keys))
	possible := func(k Identity) bool { return k == Identity{clean(k.Kind), clean(k.Scope), clean(k.Key)} }
	for _, k := range keys {
		if possible(k) { // a database refuses the others
			asked = append(asked, k)
		}
	}
	known, err := l.store.Known(ctx, asked)
	if err != nil || len(asked) == len(keys) {
		return known, err
	}
	all := make([]bool, len(keys))
	for i, k := range keys {
		if possible(k) {
			all[i], known = known[0], known[1:]
		}
	}
	return all, nil
}

// Count counts the items that match, at one moment, unless the filter asks for fields of payload or output.
func (l *Ledger) Count(ctx context.Context, f Filter) (n int64, err error) {
	if f.asksFields() {
		n, _, err = l.CountUpTo(ctx, f, 0, 0)
		return n, err
	}
	if f, err = l.byIdentity(ctx, f); err != nil {
		return 0, err
	}
	return l.store.Count(ctx, f)
}

// Counts counts the backlog by kind, and the attempts that ended since the given time.
func (l *Ledger) Counts(ctx context.Context, since time.Time) ([]stats.Counts, error) {
	return l.store.Counts(ctx, since)
}

// LeasedBy counts the leased items of each agent.
func (l *Ledger) LeasedBy(ctx context.Context) (map[string]int64, error) {
	return l.store.LeasedBy(ctx)
}

// Standing counts the unfinished items of a kind, from one snapshot.
func (l *Ledger) Standing(ctx context.Context, kind string) (stats.Standing, error) {
	return l.StandingIn(ctx, kind, scheduler.Shard{})
}

// StandingIn is Standing of one shard of the kind; the zero value is all of it.
func (l *Ledger) StandingIn(ctx context.Context, kind string, part scheduler.Shard) (stats.Standing, error) {
	c := checker{}
	if c.shard(part); c.err != nil {
		return stats.Standing{}, c.err
	}
	return l.store.Standing(ctx, kind, part)
}

// Reason explains the state of an item.
type Reason struct {
	State State
	// leased, due, put_off, backoff, paused, max_running, rate, no_worker, shard, breaker, behind, next, dead, doubt,
	// done, cancelled
	Code  string
	Text  string // one sentence
	Since time.Time
	Until time.Time // zero when it cannot be known
	Acts  []act.Act // each of which would help; the best first
}

// Why returns what an item waits for.
func (l *Ledger) Why(ctx context.Context, id int64) (Reason, error) {
	it, r, now, err := l.record(ctx, IDs(id))
	if err != nil {
		return Reason{}, err
	}
	policy, err := l.Kind(ctx, it.Kind)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Reason{}, err
	}
	if it.State == StateLeased {
		holder := []Holder{{Agent: it.Agent}}
		err := l.addHeartbeats(ctx, holder)
		w := r.whyLeased(it, holder[0], now)
		w.State = it.State
		return w, err
	}
	agents, err := l.Agents(ctx)
	if err != nil {
		return Reason{}, err
	}
	w := r.why(it, now, policy, agents)
	if w.Code == "paused" {
		pauses, err := l.Pauses(ctx, policy)
		if err != nil {
			return Reason{}, err
		}
		pause := pauses[it.Kind]
		if w.Since = pause.At; pause.Actor != "" {
			w.Text = fmt.Sprintf("Its kind %s is paused by %s since %s", it.Kind, pause.Actor, inUTC(pause.At))
			if pause.Detail != "" {
				w.Text += ": " + pause.Detail
			} else {
				w.Text += "."
			}
		}
	}
	if (w.Code == "behind" || w.Code == "no_worker") && policy.Limits.Any() {
		c, err := l.store.LimitUsage(ctx, it.Kind, cmp.Or(r.ShardKey, r.Key))
		if err != nil {
			return Reason{}, err
		}
		w = r.whyHeldBack(w, policy, c)
	}
	if w.Code == "behind" {
		r.Policy = &policy
		ahead, err := l.store.Ahead(ctx, r, stats.StandingCap)
		if err != nil {
			return Reason{}, err
		}
		w.Text = behind(it, agents, now, ahead)
	}
	w.State = it.State
	return w, nil
}

// why explains an item that is not leased.
func (r *Record) why(it Item, now time.Time, policy Kind, agents []Agent) Reason {
	switch it.State {
	case StateDone:
		if it.Outcome == OutcomeSkipped {
			return Reason{Code: "done", Text: it.endSentence("skipped"), Since: it.EndedAt}
		}
		return Reason{Code: "done", Text: fmt.Sprintf("It was done in attempt %d at %s.", it.Attempt, inUTC(it.EndedAt)),
			Since: it.EndedAt}
	case StateCancelled:
		return Reason{Code: "cancelled", Text: it.endSentence("cancelled"), Since: it.EndedAt,
			Acts: []act.Act{{Name: act.Reopen, Item: it.ID}}}
	case StateDead:
		return Reason{Code: "dead", Text: fmt.Sprintf("It is dead after %s; the last error: %s", troubles(it),
			cmp.Or(it.Error, it.Code)), Since: it.EndedAt, Acts: []act.Act{it.retry()}}
	case StateDoubt:
		return Reason{Code: "doubt", Since: it.EndedAt,
			Text: fmt.Sprintf("Attempt %d may or may not have taken effect (%s); a person decides.", it.Attempt, it.Outcome),
			Acts: []act.Act{it.retry(), {Name: act.Finish, Item: it.ID}, {Name: act.Cancel, Item: it.ID}}}
	}
	return r.whyQueued(it, policy, agents, now)
}

// retry is the act that makes the item ready again.
func (it Item) retry() act.Act { return act.Act{Name: act.Retry, Item: it.ID} }

// endSentence returns a sentence about the end of an item, with the person who ended it, if any, and the reason.
func (it Item) endSentence(how string) string {
	if it.StartedAt.IsZero() && it.EndedBy != "" {
		how += " by " + it.EndedBy
	}
	if it.Error == "" {
		return fmt.Sprintf("It was %s at %s.", how, inUTC(it.EndedAt))
	}
	return fmt.Sprintf("It was %s at %s: %s", how, inUTC(it.EndedAt), it.Error)
}

// troubles returns what went wrong in this round as text: "1 failure and 2 crashes".
func troubles(it Item) string {
	var parts []string
	for _, c := range []struct {
		n         int
		one, many string
	}{{it.Failures, "failure", "failures"}, {it.Crashes, "crash", "crashes"}, {it.Losses, "lost lease", "lost leases"}} {
		switch {
		case c.n == 1:
			parts = append(parts, "1 "+c.one)
		case c.n > 1:
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.many))
		}
	}
	return strings.Join(parts, " and ")
}

// whyQueued explains an item that is waiting or ready.
func (r *Record) whyQueued(it Item, policy Kind, agents []Agent, now time.Time) Reason {
	if policy.Paused {
		return Reason{Code: "paused", Text: fmt.Sprintf("Its kind %s is paused.", it.Kind),
			Acts: []act.Act{{Name: act.Resume, Kind: it.Kind}}}
	}
	if it.State == StateWaiting {
		switch {
		case it.PutOff:
			return Reason{Code: "put_off", Text: fmt.Sprintf("It is put off until %s.", inUTC(it.Due)), Until: it.Due,
				Acts: []act.Act{it.retry()}}
		case it.Outcome == OutcomeSnoozed && it.RoundState == RoundOpen && r.attempted(now):
			return r.whySnoozed(it, now)
		case it.RoundState == RoundFailed:
			return Reason{Code: "next", Text: fmt.Sprintf("Its round %s failed for good in attempt %d (%s); the next one "+
				"begins at %s.", it.Round, it.Attempt, cmp.Or(it.Code, it.Error), inUTC(it.Due)),
				Since: it.EndedAt, Until: it.Due, Acts: []act.Act{it.retry()}}
		case it.Failures+it.Crashes > 0:
			return Reason{Code: "backoff", Text: fmt.Sprintf("Attempt %d failed (%s); it is tried again at %s.", it.Attempt,
				cmp.Or(it.Code, it.Error), inUTC(it.Due)),
				Since: it.EndedAt, Until: it.Due, Acts: []act.Act{it.retry()}}
		case it.RoundState == RoundDone:
			return Reason{Code: "next",
				Text: fmt.Sprintf("Its round %s was done in attempt %d at %s; the next one begins at %s.", it.Round, it.Attempt,
					inUTC(it.EndedAt), inUTC(it.Due)),
				Since: it.EndedAt, Until: it.Due}
		case it.Every != "":
			return Reason{Code: "next", Until: it.Due, Text: fmt.Sprintf("It recurs (every %s); its round %s begins at %s.",
				it.Every, it.Round, inUTC(it.Due))}
		}
		return Reason{Code: "due", Text: fmt.Sprintf("It is due at %s.", inUTC(it.Due)), Until: it.Due}
	}
	if workers := working(it.Kind, agents); len(workers) > 0 {
		return whyReady(it, workers, now)
	}
	idle := Reason{Code: "no_worker", Text: fmt.Sprintf("It is ready, but no agent works kind %s now.", it.Kind),
		Since: it.Due}
	if policy.Definition != "" { // a plugin has worked it before, so it is not worked by people
		idle.Acts = []act.Act{{Name: act.Work, Kind: it.Kind}}
	}
	return idle
}

// Now returns the time of the database's clock.
func (l *Ledger) Now(ctx context.Context) (time.Time, error) { return l.store.Now(ctx) }
