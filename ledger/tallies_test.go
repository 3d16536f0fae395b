package ledger

import (
	"testing"
	"time"
)

// Nobody can say when a kind is done that is paused, or that nobody works.
func TestETA(t *testing.T) {
	now := at("2026-11-20T10:00:30Z")
	tallies := []MinuteTally{{At: at("2026-11-20T10:00:00Z"), Kind: "k", Done: 60}}
	for _, c := range []struct {
		paused  bool
		workers int
		want    time.Duration
	}{{false, 1, 10 * time.Second}, {true, 1, 0}, {false, 0, 0}} {
		s := kindStats(Counts{Kind: "k", Ready: 10}, tallies, now, c.paused, c.workers)
		if s.ETA != c.want || s.Paused != c.paused || s.Workers != c.workers {
			t.Errorf("%+v: %+v", c, s)
		}
	}
}
