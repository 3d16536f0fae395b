package ledger

import (
	"testing"
	"time"
)

// Nobody can say when a kind is done that is paused, or that nobody works. It is not sooner than its rate allows.
func TestETA(t *testing.T) {
	now := at("2026-11-20T10:00:30Z")
	tallies := []MinuteTally{{At: at("2026-11-20T10:00:00Z"), Kind: "k", Done: 60}}
	for _, c := range []struct {
		paused  bool
		workers int
		rate    Rate
		want    time.Duration
	}{{false, 1, Rate{}, 10 * time.Second}, {true, 1, Rate{}, 0}, {false, 0, Rate{}, 0},
		{false, 1, Rate{30, time.Minute}, 20 * time.Second}, {false, 1, Rate{100, time.Second}, 10 * time.Second}} {
		s := kindStats(Counts{Kind: "k", Ready: 10}, tallies, now, Kind{Paused: c.paused, Limits: Limits{Rate: c.rate}}, c.workers)
		if s.ETA != c.want || s.Paused != c.paused || s.Workers != c.workers {
			t.Errorf("%+v: %+v", c, s)
		}
	}
}
