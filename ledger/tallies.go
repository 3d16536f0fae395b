package ledger

import (
	"context"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger/stats"
)

// Tally returns the count, for AddTallies, of a lease that ended without a worker; its work began with its claim. now
// is the time of the ledger's clock. A lease that was given back adds neither time of waiting nor time of work.
func (e *Ending) Tally(now time.Time) stats.Minute {
	begun := e.Recorded != OutcomeReleased
	worked := time.Duration(0)
	if begun {
		worked = max(0, now.Sub(e.Lease.StartedAt))
	}
	m := e.Recorded.Tally(worked)
	if m.At, m.Kind, m.Agent = now, e.Lease.Kind, e.Lease.Agent; begun {
		m.Waits.Count(e.Lease.StartedAt.Sub(e.Lease.Due))
		m.Works.Count(worked)
	}
	return m
}

// AddTallies adds the counts to those stored for the same minute, kind and agent. A repeated call adds twice.
func (l *Ledger) AddTallies(ctx context.Context, tallies ...stats.Minute) error {
	c := checker{}
	for i := range tallies {
		t := &tallies[i]
		c.kind(t.Kind)
		c.agent(t.Agent)
		if t.Done < 0 || t.Failed < 0 || t.Other < 0 || t.Worked < 0 ||
			slices.Min(t.Waits[:]) < 0 || slices.Min(t.Works[:]) < 0 {
			c.fail("tally", "must not be negative")
		}
		t.At = t.At.UTC().Truncate(time.Minute)
	}
	if c.err != nil || len(tallies) == 0 {
		return c.err
	}
	return l.store.AddTallies(ctx, tallies)
}

// ForgetTallies removes the minutes that are older than stats.MinutesKept. Every worker calls it regularly.
func (l *Ledger) ForgetTallies(ctx context.Context) error {
	now, err := l.store.Now(ctx)
	if err != nil {
		return err
	}
	return l.store.ForgetTallies(ctx, now.Add(-stats.MinutesKept))
}
