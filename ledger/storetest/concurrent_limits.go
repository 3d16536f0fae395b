package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// concurrentLimits: many claimers work items under limits, by the database's clock. At no moment are too many items
// leased of the kind or of a shard key, and no rate is exceeded.
func concurrentLimits(t *testing.T, open Open) {
	limits := scheduler.Limits{MaxRunning: 12, MaxRunningPerShardKey: 2, Burst: 20,
		Rate:            scheduler.Rate{Count: 20_000, Per: time.Second},
		RatePerShardKey: scheduler.Rate{Count: 100, Per: 100 * time.Millisecond}}
	l := ledger.New(open(t, nil), ledger.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const n, claimers, keys = 400, 6, 10
	must.OK(t, l.SetKind(ctx, "test", ledger.Kind{Name: "k", MaxLost: 1000, MaxFailures: 1000,
		Backoff: ledger.Backoff{Base: time.Microsecond, Cap: time.Millisecond}, Limits: limits}))
	items := make([]ledger.NewItem, n)
	for i := range items {
		items[i] = ledger.NewItem{Kind: "k", Scope: fmt.Sprint(i % keys), Key: fmt.Sprint(i), ShardKey: fmt.Sprint(i % keys)}
	}
	must.Do(t)(l.Add(ctx, items...))
	var done, inHand atomic.Int64
	var ofKey [keys]atomic.Int64
	var wg sync.WaitGroup
	for c := range claimers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(c), 3))
			for done.Load() < n && ctx.Err() == nil {
				ls, err := l.Claim(ctx, ledger.Claim{Kind: "k", Agent: fmt.Sprint("agent-", c), Limit: 1 + rnd.IntN(20)})
				if err != nil {
					t.Error(err)
				}
				if len(ls) == 0 {
					if _, err := l.Promote(ctx, 100); err != nil {
						t.Error(err)
					}
				}
				e := make([]ledger.Ending, len(ls))
				for i, ls := range ls {
					key := int(ls.ShardKey[0] - '0')
					if k, of := inHand.Add(1), ofKey[key].Add(1); k > 12 || of > 2 {
						t.Errorf("%d are leased, %d of key %d", k, of, key)
					}
					e[i] = ledger.Ending{Lease: ls, Result: ledger.Done(nil)}
					if rnd.IntN(4) == 0 {
						e[i].Result = ledger.Fail(errTest)
					}
				}
				if c == 0 { // one claimer also checks by a snapshot
					tooMany(t, l)
				}
				for _, ls := range ls {
					inHand.Add(-1)
					ofKey[ls.ShardKey[0]-'0'].Add(-1)
				}
				for i, err := range l.Finish(ctx, e...) {
					if err != nil {
						t.Errorf("finish: %v", err)
					} else if e[i].Result.Outcome.Completed() {
						done.Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	if done.Load() != n {
		t.Fatalf("%d of %d are done", done.Load(), n)
	}
	h := &harness{t: t, ctx: ctx, l: l}
	h.verify()
	checkRates(t, h, limits)
}

// tooMany checks in one snapshot that the limits are kept. Each scope is also a shard key.
func tooMany(t *testing.T, l *ledger.Ledger) {
	total := int64(0)
	groups, _, err := l.Groups(t.Context(), ledger.Filter{Kinds: []string{"k"},
		States: []ledger.State{ledger.StateLeased}}, stats.ByScope, 0)
	if err != nil {
		t.Error(err)
	}
	for _, g := range groups {
		if total += g.Left; g.Left > 2 {
			t.Errorf("%d are leased of key %s", g.Left, g.Value)
		}
	}
	if total > 12 {
		t.Errorf("%d are leased", total)
	}
}

// checkRates checks every span between two claims: it has at most the burst and the rate's share of claims.
func checkRates(t *testing.T, h *harness, limits scheduler.Limits) {
	granted := map[string][]time.Time{}
	for it, err := range h.l.List(h.ctx, ledger.Filter{Kinds: []string{"k"}}, 0) {
		h.ok(err)
		as, err := h.l.Attempts(h.ctx, it.ID)
		h.ok(err)
		for _, a := range as {
			granted[""] = append(granted[""], a.LeasedAt)
			granted[it.ShardKey] = append(granted[it.ShardKey], a.LeasedAt)
		}
	}
	for key, at := range granted {
		rate := limits.Rate
		if key != "" {
			rate = limits.RatePerShardKey
		}
		slices.SortFunc(at, time.Time.Compare)
		for i := range at {
			for j := i; j < len(at); j++ {
				if most := float64(max(limits.Burst, 1)) +
					at[j].Sub(at[i]).Seconds()*float64(rate.Count)/rate.Per.Seconds(); float64(j-i+1) > most+1e-6 {
					t.Fatalf("key %q: %d claims within %s", key, j-i+1, at[j].Sub(at[i]))
				}
			}
		}
	}
}
