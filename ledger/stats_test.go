package ledger

import (
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// TestETA: the ETA of a kind is unknown if the kind is paused, is not worked or has a rate per shard key. The ETA is
// not before the rate allows it, nor before the waiting items are due.
func TestETA(t *testing.T) {
	now := time.Date(2026, 11, 20, 10, 0, 30, 0, time.UTC)
	tallies := []stats.Minute{{At: now.Truncate(time.Minute), Kind: "k", Done: 60}}
	for _, c := range []struct {
		paused  bool
		workers int
		limits  scheduler.Limits
		want    time.Duration
	}{
		{false, 1, scheduler.Limits{}, 10 * time.Second},
		{true, 1, scheduler.Limits{}, 0},
		{false, 0, scheduler.Limits{}, 0},
		{false, 1, scheduler.Limits{Rate: scheduler.Rate{Count: 30, Per: time.Minute}}, 20 * time.Second},
		{false, 1, scheduler.Limits{Rate: scheduler.Rate{Count: 100, Per: time.Second}}, 10 * time.Second},
		{false, 1, scheduler.Limits{RatePerShardKey: scheduler.Rate{Count: 100, Per: time.Second}}, 0},
	} {
		s := kindStats(stats.Counts{Kind: "k", Ready: 10}, tallies, now, Kind{Paused: c.paused, Limits: c.limits}, c.workers,
			time.Time{})
		if s.ETA != c.want || s.Paused != c.paused || s.Workers != c.workers {
			t.Errorf("%+v: %+v", c, s)
		}
	}
	for due, want := range map[time.Duration]time.Duration{time.Second: 10 * time.Second, 8 * time.Hour: 8 * time.Hour} {
		s := kindStats(stats.Counts{Kind: "k", Ready: 9, Waiting: 1}, tallies, now, Kind{}, 1, now.Add(due))
		if s.ETA != want {
			t.Errorf("an item due in %v: %v, want %v", due, s.ETA, want)
		}
	}
}
