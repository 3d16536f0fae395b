package storetest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// named claims the items of kind k that it names, and checks the claimed keys.
func (h *harness) named(c ledger.Claim, want string, items ...int64) []*ledger.Lease {
	h.t.Helper()
	c.Kind, c.Items = "k", items
	if c.Agent == "" {
		c.Agent = "a"
	}
	if c.Limit == 0 {
		c.Limit = 10
	}
	ls, err := h.l.Claim(h.ctx, c)
	h.ok(err)
	equal(h.t, "claimed", strings.Join(keys(ls), " "), want)
	return ls
}

func claimNamed(t *testing.T, h *harness) {
	added := h.add(ledger.NewItem{Kind: "k", Key: "1"}, ledger.NewItem{Kind: "k", Key: "2"},
		ledger.NewItem{Kind: "k", Key: "lazy", Priority: 2}, ledger.NewItem{Kind: "k", Key: "4"},
		ledger.NewItem{Kind: "k", Key: "later", Due: start.Add(time.Hour)}, ledger.NewItem{Kind: "other", Key: "x"},
		ledger.NewItem{Kind: "k", Key: "7"}, ledger.NewItem{Kind: "k", Key: "8"})
	id := func(n int) int64 { return added[n-1].ID }
	h.named(ledger.Claim{Limit: 1}, "4", id(3), id(4)) // the first in the order of claims
	h.named(ledger.Claim{LookFirst: true}, "lazy", id(3), id(4), id(5), id(6), 1<<40)
	h.named(ledger.Claim{}, "", id(3))
	slot := h.item(id(7)).Slot
	h.named(ledger.Claim{Shard: scheduler.Shard{Index: (slot + 1) % 2, Count: 2}}, "", id(7))
	seven := h.named(ledger.Claim{Shard: scheduler.Shard{Index: slot % 2, Count: 2}}, "7", id(7))
	equal(t, "others keep their place", keys(h.claim("k", 1)), []string{"1"})
	h.end(seven[0], ledger.Done(nil))
	h.named(ledger.Claim{}, "", id(7))

	// end and claim in one call
	errs, ls, _, err := h.l.FinishAndClaim(h.ctx, ledger.Claim{Kind: "k", Agent: "a", Limit: 5, Items: []int64{id(8)}},
		ledger.Ending{Lease: h.named(ledger.Claim{}, "2", id(2))[0], Result: ledger.Done(nil)})
	h.ok(errors.Join(append(errs, err)...))
	equal(t, "exchanged", keys(ls), []string{"8"})
	h.end(ls[0], ledger.Release())
	h.policy(ledger.Kind{Name: "k", Paused: true})
	h.named(ledger.Claim{}, "", id(8))

	for _, bad := range [][]int64{{0}, {-1}, {1, 2, 1}, make([]int64, bounds.MaxBatch+1)} {
		_, err := h.l.Claim(h.ctx, ledger.Claim{Kind: "k", Agent: "a", Limit: 1, Items: bad})
		h.is(err, ledger.ErrInvalid)
	}
}

// With and without limits, Resume extends only those of the items that the agent holds.
func claimNamedResume(t *testing.T, h *harness) {
	for i, l := range []scheduler.Limits{{}, {MaxRunning: 100}, {MaxRunningPerShardKey: 100}} {
		h.limit(l)
		alice := ledger.Claim{Agent: fmt.Sprint("alice", i), Resume: true, TTL: time.Hour}
		var key []string
		var id []int64
		for n := range 5 {
			key = append(key, fmt.Sprint(i, "-", n))
			id = append(id, h.addOne(key[n]))
		}
		held := h.named(alice, key[0]+" "+key[1], id[0], id[1])
		h.named(ledger.Claim{}, key[2], id[2])
		h.clock.advance(time.Minute)
		got := h.named(alice, key[1]+" "+key[4], id[4], id[1], id[2])
		if !got[0].Resumed || got[0].LockID != held[1].LockID || got[1].Resumed {
			t.Fatalf("%+v, %+v", got[0], got[1])
		}
		equal(t, "not extended", h.item(id[0]).ExpiresAt, held[0].ExpiresAt)
		equal(t, "extended", h.item(id[1]).ExpiresAt, held[1].ExpiresAt.Add(time.Minute))
		alice.Limit = 2 // what she holds of them counts, what she holds of others does not
		h.named(alice, key[1]+" "+key[3], id[3], id[1])
	}
}

func claimNamedAlone(t *testing.T, h *harness) {
	h.policy(ledger.Kind{Name: "k", MaxLost: 100})
	suspect := h.addOne("suspect")
	for range 3 {
		h.claimOne("k")
		h.pass(2 * time.Minute)
	}
	good := h.add(ledger.NewItem{Kind: "k", Key: "good", Priority: -1})[0].ID
	for _, l := range []scheduler.Limits{{}, {MaxRunning: 10}} {
		h.policy(ledger.Kind{Name: "k", MaxLost: 100, Limits: l})
		ls := h.named(ledger.Claim{}, "good", suspect, good)
		ls = append(ls, h.named(ledger.Claim{}, "suspect", suspect, good)...)
		equal(t, "alone", ls[1].Alone, true)
		for _, ls := range ls {
			h.end(ls, ledger.Release())
		}
	}
}

// The limits hold for named items, too, and whatever waits before them.
func limitsNamed(t *testing.T, h *harness) {
	ids := map[string]int64{}
	note := func() {
		for it, err := range h.l.List(h.ctx, ledger.Filter{Kinds: []string{"k"}}, 0) {
			h.ok(err)
			ids[it.Key] = it.ID
		}
	}
	within := func(want string, held scheduler.HeldBack, names ...string) []*ledger.Lease {
		t.Helper()
		c := ledger.Claim{Kind: "k", Agent: "a", Limit: 10}
		for _, name := range names {
			c.Items = append(c.Items, ids[name])
		}
		ls, got, err := h.l.ClaimWithin(h.ctx, c)
		h.ok(err)
		equal(t, "claimed", strings.Join(keys(ls), " "), want)
		if want == "" {
			equal(t, "held back", got, held)
		}
		return ls
	}
	h.of("x", 1200) // more than one claim files
	h.of("y", 3)
	h.of("z", 3)
	note()
	h.limit(scheduler.Limits{MaxRunning: 2})
	first := within("y2", none, "y2")
	within("x1199", none, "x1199", "y3", "x1200")
	within("", full, "y3")
	h.limit(scheduler.Limits{MaxRunningPerShardKey: 2})
	within("y1", none, "y1", "y3", "y2")
	within("z2", none, "y3", "z2")
	within("", full, "y3")
	h.end(first[0], ledger.Done(nil))
	within("y3", none, "y3")
	within("", none, "y3") // leased, so no limit holds it back
	h.limit(scheduler.Limits{RatePerShardKey: scheduler.Rate{Count: 1, Per: time.Minute}})
	within("z1", none, "z1", "z3")
	within("", scheduler.HeldBack{Wait: time.Minute}, "z3")
	h.limit(scheduler.Limits{Rate: scheduler.Rate{Count: 1, Per: time.Second}})
	within("x7", none, "z3", "x7")
	within("", scheduler.HeldBack{Wait: time.Second}, "z3")
	h.limit(scheduler.Limits{})
	within("x8 z3", none, "z3", "x8")
}

// concurrentNamed: of several agents that claim the same item at the same moment, exactly one gets it.
func concurrentNamed(t *testing.T, open Open) {
	l := ledger.New(open(t, nil), ledger.Options{})
	ctx := t.Context()
	for i := range 10 {
		added, err := l.Add(ctx, ledger.NewItem{Kind: "k", Key: fmt.Sprint(i)})
		must.OK(t, err)
		var got atomic.Int64
		var wg sync.WaitGroup
		for agent := range 3 {
			wg.Go(func() {
				ls, err := l.Claim(ctx, ledger.Claim{Kind: "k", Agent: fmt.Sprint(agent), Limit: 1, Resume: agent > 0,
					Items: []int64{added[0].ID}})
				if err != nil {
					t.Error(err)
				}
				got.Add(int64(len(ls)))
			})
		}
		wg.Wait()
		equal(t, "leases of one item", got.Load(), 1)
	}
}
