package storetest

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// CompareResources is Compare where everything is about a few resources that many items need, so
// that some are passed over for long, and become the reserver.
func CompareResources(t *testing.T, place NewPlace) {
	few(t)
	rapid.Check(t, func(rt *rapid.T) {
		m := newMachine(t, place)
		defer func() { m.l[1].Close() }()
		m.place.Faults = nil
		rt.Repeat(map[string]func(*rapid.T){
			"":          m.check,
			"crowd":     m.crowd,
			"claim":     m.claimCrowd,
			"claim one": m.claimCrowd,
			"end":       m.endCrowd,
			"end one":   m.endCrowd,
			"wait":      m.waitCrowd,
			"cancel":    m.cancelCrowd,
			"pause":     m.pauseCrowd,
			"restart":   m.restart,
			"expire":    m.expire,
			"promote":   m.promote,
			"items":     m.items,
		})
	})
}

// crowd adds items that need the same few resources.
func (m *machine) crowd(t *rapid.T) {
	items := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) ledger.NewItem {
		return ledger.NewItem{Kind: kindNames.Draw(t, "kind"), Key: fmt.Sprint(rapid.IntRange(0, 1000).Draw(t, "key")),
			Priority:  int16(rapid.IntRange(0, 1).Draw(t, "priority")),
			Resources: rapid.SliceOfN(rapid.SampledFrom([]string{"r", "s", "t"}), 0, 3).Draw(t, "resources")}
	}), 2, 6).Draw(t, "items")
	got := both(m, t, "add", func(_ int, l *ledger.Ledger) ([]ledger.Added, error) {
		return l.Add(m.tb.Context(), items...)
	})
	m.sameAdded(t, items, got)
}

func (m *machine) claimCrowd(t *rapid.T) {
	c := ledger.Claim{Kind: kindNames.Draw(t, "kind"), Agent: "x", Limit: rapid.IntRange(1, 4).Draw(t, "limit"),
		TTL: 5 * time.Minute}
	if rapid.IntRange(0, 5).Draw(t, "shard") == 0 {
		c.Shard = scheduler.Shard{Index: rapid.IntRange(0, 1).Draw(t, "index"), Count: 2}
	}
	got := both(m, t, "claim", func(_ int, l *ledger.Ledger) ([]*ledger.Lease, error) {
		return l.Claim(m.tb.Context(), c)
	})
	same(t, "claimed", [2][]string{claimed(got[0]), claimed(got[1])})
	for i := range got[0] {
		m.leases = append(m.leases, [2]*ledger.Lease{got[0][i], got[1][i]})
	}
}

// endCrowd ends the lease that was granted first, or another.
func (m *machine) endCrowd(t *rapid.T) {
	if len(m.leases) == 0 {
		t.Skip("nothing is leased")
	}
	i := min(len(m.leases)-1, rapid.IntRange(0, 3).Draw(t, "lease"))
	p := m.leases[i]
	m.leases = append(m.leases[:i:i], m.leases[i+1:]...)
	r := rapid.SampledFrom([]ledger.Result{ledger.Done(nil), ledger.Release(), ledger.Snooze(time.Second, "")}).Draw(t,
		"result")
	m.perLease(t, "end", [][2]*ledger.Lease{p}, func(l *ledger.Ledger, ls []*ledger.Lease) []error {
		return l.Finish(m.tb.Context(), ledger.Ending{Lease: ls[0], Result: r})
	})
}

func (m *machine) waitCrowd(t *rapid.T) {
	m.clock.advance(time.Duration(rapid.SampledFrom([]int{500, 1000, 2000, 40_000}).Draw(t, "ms")) * time.Millisecond)
}

func (m *machine) cancelCrowd(t *rapid.T) {
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

func (m *machine) pauseCrowd(t *rapid.T) {
	k := ledger.Kind{Name: kindNames.Draw(t, "kind"), Paused: rapid.IntRange(0, 2).Draw(t, "paused") == 0}
	both(m, t, "pause", func(_ int, l *ledger.Ledger) (int, error) { return 0, l.SetKind(m.tb.Context(), "op", k) })
}
