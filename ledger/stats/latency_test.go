package stats

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestLatencyRanges(t *testing.T) {
	for d, want := range map[time.Duration]int{-time.Second: 0, 0: 0, 4*time.Millisecond - 1: 0, 4 * time.Millisecond: 1,
		8*time.Millisecond - 1: 1, 8 * time.Millisecond: 2, time.Second: 8, 16777216*time.Millisecond - 1: 22,
		16777216 * time.Millisecond: 23, 1000 * time.Hour: 23} {
		var l Latencies
		l.Count(d)
		if l[want] != 1 || l.Total() != 1 {
			t.Errorf("%s is not in range %d: %v", d, want, l)
		}
	}
}

// A percentile lies below its bound, and not below half of it.
func TestWithin(t *testing.T) {
	var none Latencies
	if got := none.Within(50); got != 0 {
		t.Errorf("of none: %s", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(0, 60_000).Draw(t, "ms")) * time.Millisecond
		}), 1, 100).Draw(t, "durations")
		percent := rapid.IntRange(1, 99).Draw(t, "percent")
		var l Latencies
		for _, d := range all {
			l.Count(d)
		}
		slices.Sort(all)
		exact := all[(percent*len(all)+99)/100-1] // the nearest rank
		got := l.Within(percent)
		if exact >= got || got > shortest && exact < got/2 {
			t.Errorf("percentile %d of %v: below %s, is %s", percent, all, got, exact)
		}
	})
}
