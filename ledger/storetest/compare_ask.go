package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// This file compares random questions about many items.

// ended compares the answers about ended attempts. Items have the same order in both ledgers, so limits cut at the
// same place.
func (m *machine) ended(t *rapid.T) {
	q := ledger.EndedQuery{Filter: m.filter(t), Failed: rapid.Bool().Draw(t, "failed"),
		Limit: rapid.IntRange(1, 100).Draw(t, "limit")}
	if rapid.Bool().Draw(t, "after") {
		q.After.At = m.clock.now().Add(-time.Duration(rapid.SampledFrom([]int{1, 100, 5000}).Draw(t, "ago")) * time.Second)
	}
	var got [2][]string
	for i, l := range m.l {
		es, err := l.Ended(m.tb.Context(), q)
		must.OK(t, err)
		for _, e := range es {
			got[i] = append(got[i], fmt.Sprint(m.keyOf(i, e.ItemID), e.Attempt.Attempt, e.FinishedAt, e.Outcome, e.Round, e.Key))
		}
		rounds, _, err := l.Rounds(m.tb.Context(), q, time.Time{}, 0)
		must.OK(t, err)
		for _, e := range rounds {
			got[i] = append(got[i], fmt.Sprint("round ", m.keyOf(i, e.ItemID), e.Attempt.Attempt, e.Round, e.ClosedAs()))
		}
	}
	slices.Sort(got[0])
	slices.Sort(got[1])
	if d := cmp.Diff(got[0], got[1]); d != "" {
		t.Fatalf("ended %+v (-memory +store):\n%s", q, d)
	}
	recent := both(m, t, "recent", func(_ int, l *ledger.Ledger) ([]ledger.Ended, error) {
		return l.Recent(m.tb.Context(), q.Filter, 1000)
	})
	var keys [2][]string
	for i := range recent {
		for _, e := range recent[i] {
			keys[i] = append(keys[i], fmt.Sprint(e.Key, e.Attempt.Attempt, e.FinishedAt))
		}
		slices.Sort(keys[i]) // the order of attempts that ended at the same instant is not defined
	}
	same(t, "recent", keys)
	by := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{stats.ByHour, stats.ByKind, stats.ByScope, stats.ByCode,
		stats.ByWorker}), 1, 5, rapid.ID).Draw(t, "counted by")
	counts := both(m, t, "attempt groups", func(_ int, l *ledger.Ledger) (ledger.AttemptCounts, error) {
		counts, reached, err := l.AttemptGroups(m.tb.Context(), q.Filter, by, 0)
		if err == nil && !reached.IsZero() {
			t.Errorf("not all attempts were counted without a bound, only those from %v on", reached)
		}
		return counts, err
	})
	alike(t, "attempt groups", counts)
	now := both(m, t, "now", func(_ int, l *ledger.Ledger) (time.Time, error) { return l.Now(m.tb.Context()) })
	same(t, "now", now)
}

// tallies adds, forgets and reads tallies.
func (m *machine) tallies(t *rapid.T) {
	n := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) stats.Minute {
		var waits stats.Latencies
		waits[rapid.IntRange(0, 23).Draw(t, "range")] = rapid.Int64Range(0, 5).Draw(t, "waits")
		ago := time.Duration(rapid.IntRange(0, 100).Draw(t, "minutes")) * time.Minute
		return stats.Minute{At: m.clock.now().Add(-ago), Kind: kindNames.Draw(t, "kind"), Agent: agentNames.Draw(t, "agent"),
			Done: rapid.Int64Range(0, 5).Draw(t, "done"), Failed: rapid.Int64Range(0, 5).Draw(t, "failed"), Waits: waits,
			Worked: time.Duration(rapid.Int64Range(0, 5).Draw(t, "worked")) * time.Microsecond}
	}), 0, 3).Draw(t, "tallies")
	both(m, t, "tally", func(_ int, l *ledger.Ledger) (int, error) { return 0, l.AddTallies(m.tb.Context(), n...) })
	both(m, t, "forget tallies", func(_ int, l *ledger.Ledger) (int, error) { return 0, l.ForgetTallies(m.tb.Context()) })
	got := both(m, t, "stats", func(_ int, l *ledger.Ledger) (stats.Summary, error) { return l.Stats(m.tb.Context()) })
	alike(t, "stats", got)
	held := both(m, t, "held", func(_ int, l *ledger.Ledger) (map[string]int64, error) {
		return l.LeasedBy(m.tb.Context())
	})
	alike(t, "held", held)
}

// pruneOlder runs in several transactions; see prune.
func (m *machine) pruneOlder(t *rapid.T) {
	older, kind := time.Duration(rapid.IntRange(1, 120).Draw(t, "seconds"))*time.Second, kindNames.Draw(t, "kind")
	got := both(m, t, "prune older", func(_ int, l *ledger.Ledger) (int64, error) {
		return l.PruneOlder(m.tb.Context(), "op", older, kind)
	})
	if !m.repeated {
		same(t, "pruned", got)
	}
}
