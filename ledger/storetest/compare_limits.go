package storetest

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// CompareLimits is Compare with few shard keys, under limits that change. Claims and ends are listed twice, so that
// rapid draws them twice as often as the rest.
func CompareLimits(t *testing.T, place NewPlace) {
	fewerChecks(t)
	rapid.Check(t, func(rt *rapid.T) {
		m := newMachine(t, place)
		defer func() { m.l[1].Close() }()
		m.place.Faults = nil // Compare has the faults
		rt.Repeat(map[string]func(*rapid.T){
			"":          m.check,
			"queue":     m.queueUp,
			"claim":     m.claimWithin,
			"claim one": m.claimWithin,
			"end":       m.endOne,
			"end one":   m.endOne,
			"wait":      m.wait,
			"cancel":    m.cancelOne,
			"limit":     m.limit,
			"beat":      m.beat,
			"expire":    m.expire,
			"promote":   m.promote,
			"items":     m.items,
		})
	})
}

var (
	shardKeys = rapid.SampledFrom([]string{"", "a", "b", "c"})
	rates     = rapid.SampledFrom([]scheduler.Rate{{}, {}, {Count: 1, Per: time.Second}, {Count: 3, Per: 2 * time.Second},
		{Count: 7, Per: time.Minute}})
)

// queueUp adds items of the same few shard keys.
func (m *machine) queueUp(t *rapid.T) {
	items := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) ledger.NewItem {
		return ledger.NewItem{Kind: kindNames.Draw(t, "kind"), Key: fmt.Sprint(rapid.IntRange(0, 1000).Draw(t, "key")),
			Priority: int16(rapid.IntRange(0, 1).Draw(t, "priority")), ShardKey: shardKeys.Draw(t, "shard key")}
	}), 2, 6).Draw(t, "items")
	got := both(m, t, "add", func(_ int, l *ledger.Ledger) ([]ledger.Added, error) {
		return l.Add(m.tb.Context(), items...)
	})
	m.sameAdded(t, items, got)
}

// limit sets the limits of a kind, or removes them.
func (m *machine) limit(t *rapid.T) {
	l := scheduler.Limits{MaxRunning: rapid.IntRange(0, 4).Draw(t, "running"), Rate: rates.Draw(t, "rate")}
	if rapid.Bool().Draw(t, "by key") {
		l.MaxRunningPerShardKey = rapid.IntRange(0, 2).Draw(t, "running of a key")
		l.RatePerShardKey = rates.Draw(t, "rate of a key")
	}
	if l.Rate.Count > 0 || l.RatePerShardKey.Count > 0 {
		l.Burst = rapid.IntRange(0, 3).Draw(t, "burst")
	}
	k := ledger.Kind{Name: kindNames.Draw(t, "kind"), Paused: rapid.IntRange(0, 9).Draw(t, "paused") == 0, Limits: l}
	both(m, t, "limit", func(_ int, l *ledger.Ledger) (int, error) { return 0, l.SetKind(m.tb.Context(), "op", k) })
}

// claimWithin claims, and compares the leases. It compares what is held back only if nothing was granted: otherwise
// HeldBack is a hint.
func (m *machine) claimWithin(t *rapid.T) {
	c := ledger.Claim{Kind: kindNames.Draw(t, "kind"), Agent: "x", Limit: rapid.IntRange(1, 4).Draw(t, "limit"),
		TTL: 5 * time.Minute, Resume: rapid.IntRange(0, 9).Draw(t, "resume") == 0}
	if rapid.IntRange(0, 5).Draw(t, "shard") == 0 {
		c.Shard = scheduler.Shard{Index: rapid.IntRange(0, 1).Draw(t, "index"), Count: 2}
	}
	named := m.withItems(t, c)
	var held [2]scheduler.HeldBack
	got := both(m, t, "claim", func(side int, l *ledger.Ledger) (ls []*ledger.Lease, err error) {
		ls, held[side], err = l.ClaimWithin(m.tb.Context(), named[side])
		return ls, err
	})
	same(t, "claimed", [2][]string{claimed(got[0]), claimed(got[1])})
	if len(got[0]) == 0 {
		same(t, "held back", held)
	}
	if !c.Resume {
		for i := range got[0] {
			m.leases = append(m.leases, [2]*ledger.Lease{got[0][i], got[1][i]})
		}
	}
}

// endOne ends one of the four oldest leases.
func (m *machine) endOne(t *rapid.T) {
	if len(m.leases) == 0 {
		t.Skip("nothing is leased")
	}
	i := min(len(m.leases)-1, rapid.IntRange(0, 3).Draw(t, "lease"))
	p := m.leases[i]
	m.leases = append(m.leases[:i:i], m.leases[i+1:]...)
	results := []ledger.Result{ledger.Done(nil), ledger.Release(), ledger.Snooze(time.Second, "")}
	r := rapid.SampledFrom(results).Draw(t, "result")
	m.perLease(t, "end", [][2]*ledger.Lease{p}, func(l *ledger.Ledger, ls []*ledger.Lease) []error {
		return l.Finish(m.tb.Context(), ledger.Ending{Lease: ls[0], Result: r})
	})
}

func (m *machine) wait(t *rapid.T) {
	m.clock.advance(time.Duration(rapid.SampledFrom([]int{500, 1000, 2000, 40_000}).Draw(t, "ms")) * time.Millisecond)
}

func (m *machine) cancelOne(t *rapid.T) {
	ids := m.ids(t)
	if len(ids[0]) == 0 || rapid.IntRange(0, 2).Draw(t, "seldom") > 0 {
		t.Skip("nothing is cancelled")
	}
	i := rapid.IntRange(0, len(ids[0])-1).Draw(t, "item")
	got := both(m, t, "cancel", func(side int, l *ledger.Ledger) (int64, error) {
		return l.Cancel(m.tb.Context(), "op", ledger.IDs(ids[side][i]))
	})
	same(t, "cancelled", got)
}
