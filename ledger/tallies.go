package ledger

import (
	"context"
	"time"
)

// MinuteTally counts attempts of a kind that ended within one minute. Workers add them up and write them
// every few seconds, so that rates and charts never count attempts. They are not exact: a worker
// that is killed loses what it had not written, and a write whose answer was lost is made twice.
type MinuteTally struct {
	At     time.Time // start of the minute
	Kind   string
	Agent  string        // who worked; "" in sums over all
	Done   int64         // done or skipped
	Failed int64         // failed or crashed
	Other  int64         // with any other outcome
	Worked time.Duration // in handlers, in whole microseconds
}

// Ended is how many attempts there were.
func (t MinuteTally) Ended() int64 { return t.Done + t.Failed + t.Other }

// Count counts one more attempt.
func (t *MinuteTally) Count(o Outcome, worked time.Duration) {
	switch {
	case o.Completed():
		t.Done++
	case o == OutcomeFailed || o == OutcomeCrashed:
		t.Failed++
	default:
		t.Other++
	}
	t.Worked += worked.Truncate(time.Microsecond)
}

// Tallies are kept by the minute, then by the hour, then no longer.
const (
	TallyMinutes = 48 * time.Hour
	TallyHours   = 400 * 24 * time.Hour
)

// AddTallies adds to what is kept of these minutes, kinds and agents.
func (l *Ledger) AddTallies(ctx context.Context, tallies ...MinuteTally) error {
	c := checker{}
	for i := range tallies {
		t := &tallies[i]
		c.kind(t.Kind)
		c.agent(t.Agent)
		if t.Done < 0 || t.Failed < 0 || t.Other < 0 || t.Worked < 0 {
			c.fail("tally", "must not be negative")
		}
		t.At = t.At.UTC().Truncate(time.Minute)
	}
	if c.err != nil || len(tallies) == 0 {
		return c.err
	}
	return l.store.AddTallies(ctx, tallies)
}

// FoldTallies makes hours of the minutes that are older than TallyMinutes, and forgets hours older
// than TallyHours. Every worker does it now and then.
func (l *Ledger) FoldTallies(ctx context.Context) error {
	now, err := l.store.Now(ctx)
	if err != nil {
		return err
	}
	return l.store.FoldTallies(ctx, now.Add(-TallyMinutes).Truncate(time.Hour), now.Add(-TallyHours))
}

// Stats is what is open, and how fast it is being worked.
type Stats struct {
	At     time.Time // the database's clock
	Agents int       // programs that work now
	Kinds  []KindStats
}

// KindStats are those of one kind. The backlog is exact, what ended comes from tallies.
type KindStats struct {
	Counts
	PerSecond float64 // attempts that ended, over the last minute
	// ETA is until what is ready and leased is done at that rate, or as the rate limit of the kind allows, whichever
	// is slower; 0: it cannot be said; it is paused, or nobody works it.
	ETA     time.Duration
	Worked  time.Duration // mean time in the handler, over the last hour
	Paused  bool
	Workers int // programs that work it now; one whose plugin crashes again and again does not
}

// Stats counts the backlog by kind, and takes from the tallies what ended in the last hour.
func (l *Ledger) Stats(ctx context.Context) (Stats, error) {
	now, err := l.store.Now(ctx)
	if err != nil {
		return Stats{}, err
	}
	counts, err := l.store.Counts(ctx, now) // of attempts, none
	if err != nil {
		return Stats{}, err
	}
	tallies, err := l.store.Tallies(ctx, now.Add(-time.Hour).Truncate(time.Minute))
	if err != nil {
		return Stats{}, err
	}
	agents, err := l.store.Agents(ctx)
	if err != nil {
		return Stats{}, err
	}
	kinds, err := l.store.Kinds(ctx)
	if err != nil {
		return Stats{}, err
	}
	byName := map[string]Kind{}
	for _, k := range kinds {
		byName[k.Name] = k
	}
	byKind := map[string][]MinuteTally{}
	for _, t := range tallies {
		byKind[t.Kind] = append(byKind[t.Kind], t)
	}
	s := Stats{At: now, Agents: len(agents), Kinds: make([]KindStats, len(counts))}
	for i, c := range counts {
		workers := 0
		for _, a := range agents {
			if _, works := a.Kinds[c.Kind]; works && !a.Stalled[c.Kind].After(now) {
				workers++
			}
		}
		s.Kinds[i] = kindStats(c, byKind[c.Kind], now, byName[c.Kind], workers)
	}
	return s, nil
}

func kindStats(c Counts, tallies []MinuteTally, now time.Time, kind Kind, workers int) KindStats {
	c.Done, c.Failed = 0, 0
	s := KindStats{Counts: c, Paused: kind.Paused, Workers: workers}
	var sum MinuteTally
	for _, t := range tallies {
		sum.Done += t.Done
		sum.Failed += t.Failed
		sum.Other += t.Other
		sum.Worked += t.Worked
		// The last 60 s are the minute that runs and what of the one before is not older than that,
		// supposing that it was worked evenly.
		minute := now.Truncate(time.Minute)
		switch {
		case !t.At.Before(minute):
			s.PerSecond += float64(t.Ended()) / 60
		case t.At.Equal(minute.Add(-time.Minute)):
			s.PerSecond += float64(t.Ended()) / 60 * (1 - now.Sub(minute).Minutes())
		}
	}
	s.Done, s.Failed = sum.Done, sum.Failed
	if n := sum.Ended(); n > 0 {
		s.Worked = sum.Worked / time.Duration(n)
	}
	if open := c.Ready + c.Leased; open > 0 && s.PerSecond > 0 && !kind.Paused && workers > 0 {
		eta := float64(open) / s.PerSecond
		if rate := kind.Limits.Rate; rate.Count > 0 {
			eta = max(eta, float64(open)*rate.Per.Seconds()/float64(rate.Count))
		}
		if eta < MaxDelay.Seconds() {
			s.ETA = time.Duration(eta * float64(time.Second))
		}
	}
	return s
}
