package ledger

import (
	"context"
	"time"

	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// Stats counts the backlog by kind, and the attempts of the last hour by the tallies.
func (l *Ledger) Stats(ctx context.Context) (stats.Summary, error) {
	if err := l.fit(ctx, nil); err != nil {
		return stats.Summary{}, err
	}
	now, err := l.store.Now(ctx)
	if err != nil {
		return stats.Summary{}, err
	}
	counts, err := l.store.Counts(ctx, now) // only the backlog: the attempts come from the tallies
	if err != nil {
		return stats.Summary{}, err
	}
	tallies, err := l.store.Tallies(ctx, now.Add(-time.Hour).Truncate(time.Minute))
	if err != nil {
		return stats.Summary{}, err
	}
	agents, err := l.Agents(ctx)
	if err != nil {
		return stats.Summary{}, err
	}
	kinds, err := l.store.Kinds(ctx)
	if err != nil {
		return stats.Summary{}, err
	}
	byName := map[string]Kind{}
	for _, k := range kinds {
		byName[k.Name] = k
	}
	byKind := map[string][]stats.Minute{}
	s := stats.Summary{At: now, Agents: len(agents), Kinds: make([]stats.Kind, len(counts))}
	for _, t := range tallies {
		byKind[t.Kind] = append(byKind[t.Kind], t)
		if t.Done+t.Failed+t.Waits.Total() > 0 {
			s.Paces = append(s.Paces, stats.Pace{At: t.At, Kind: t.Kind, Done: t.Done, Failed: t.Failed, Waits: t.Waits})
		}
	}
	for i, c := range counts {
		workers := 0
		for _, a := range agents {
			if _, works := a.Kinds[c.Kind]; works && !a.Stalled[c.Kind].After(now) {
				workers++
			}
		}
		var next time.Time
		if c.Waiting > 0 && c.RoundsDone+c.RoundsFailed+c.RoundsPutOff == 0 { // all waiting items have open rounds
			standing, err := l.store.Standing(ctx, c.Kind, scheduler.Shard{})
			if err != nil {
				return stats.Summary{}, err
			}
			next = standing.NextDue
		}
		s.Kinds[i] = kindStats(c, byKind[c.Kind], now, byName[c.Kind], workers, next)
	}
	return s, nil
}

// kindStats returns the figures of a kind. next is when the first waiting item is due, if the waiting items are still
// to be worked: the kind is not done before then.
func kindStats(c stats.Counts, tallies []stats.Minute, now time.Time, kind Kind, workers int,
	next time.Time) stats.Kind {
	c.Done, c.Failed = 0, 0
	s := stats.Kind{Counts: c, Paused: kind.Paused, Workers: workers}
	var sum stats.Minute
	minute := now.Truncate(time.Minute)
	for _, t := range tallies {
		sum.Add(t)
		// PerSecond is over the last 60 s: the minute that has not ended, and the later part of the minute before it,
		// as if attempts had ended evenly in that minute.
		switch {
		case !t.At.Before(minute):
			s.PerSecond += float64(t.Done+t.Failed) / 60
		case t.At.Equal(minute.Add(-time.Minute)):
			s.PerSecond += float64(t.Done+t.Failed) / 60 * (1 - now.Sub(minute).Minutes())
		}
	}
	s.Done, s.Failed, s.Waits, s.Works = sum.Done, sum.Failed, sum.Waits, sum.Works
	if n := sum.Ended(); n > 0 {
		s.Worked = sum.Worked / time.Duration(n)
	}
	// With a rate per shard key, the key with the most items decides. Counts do not have it.
	known := s.PerSecond > 0 && !kind.Paused && workers > 0 && kind.Limits.RatePerShardKey.Count == 0
	var wait time.Duration // until the rounds that are put off begin
	if c.RoundsPutOff > 0 && !kind.Paused && workers > 0 {
		wait = c.PutOffUntil.Sub(now)
	}
	open := c.Open()
	if open == 0 {
		s.ETA = wait
	}
	if open > 0 && known {
		eta := float64(open) / s.PerSecond
		if rate := kind.Limits.Rate; rate.Count > 0 {
			eta = max(eta, float64(open)*rate.Per.Seconds()/float64(rate.Count))
		}
		if eta < bounds.MaxDelay.Seconds() {
			s.ETA = max(wait, time.Duration(eta*float64(time.Second)))
			if !next.IsZero() {
				s.ETA = max(s.ETA, next.Sub(now))
			}
		}
	}
	return s
}
