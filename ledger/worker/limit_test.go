package worker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// Items that a rate holds back begin when it allows them, without polls in between.
func TestRateIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.policy(ledger.Kind{Limits: scheduler.Limits{Rate: scheduler.Rate{Count: 5, Per: time.Second}}})
		r.addMany(21)
		began := time.Now()
		var mu sync.Mutex
		var at []time.Duration
		r.drain(Func(func(context.Context, *ledger.Lease) ledger.Result {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Since(began))
			return ledger.Done(nil)
		}))
		for i, d := range at {
			if late := d - time.Duration(i)*200*time.Millisecond; late < 0 || late > 10*time.Millisecond {
				t.Errorf("item %d began after %s", i, d)
			}
		}
		if n := r.store.calls["claim"]; len(at) != 21 || n > 3*21 {
			t.Errorf("%d items, %d claims", len(at), n)
		}
	})
}

// Claims that read thousands of keys that are held back leave processor time to other work.
func TestClaimsInVainRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 500 * time.Millisecond
		r := newRig(t)
		r.Ledger = ledger.New(&slowClaims{r.store, took}, ledger.Options{})
		r.policy(ledger.Kind{Limits: scheduler.Limits{Rate: scheduler.Rate{Count: 1, Per: 10 * time.Minute}}})
		r.addMany(2)
		var ended atomic.Int32
		stop := r.run(r.worker(Func(func(context.Context, *ledger.Lease) ledger.Result {
			ended.Add(1)
			return ledger.Done(nil)
		})))
		elapse(10*time.Minute - time.Second)
		r.store.mu.Lock()
		claims := r.store.calls["claim"]
		r.store.mu.Unlock()
		if busy := time.Duration(claims) * took; busy > 10*time.Minute/4 {
			t.Errorf("%d claims in vain took %v of ten minutes", claims, busy)
		}
		elapse(3 * time.Second)
		if n := ended.Load(); n != 2 {
			t.Errorf("%d items ended when the rate let the second begin", n)
		}
		stop()
	})
}

// A drain waits for a rate that allows the next item within the patience or within a minute, not for a slower one.
func TestDrainUnderRate(t *testing.T) {
	for _, tt := range []struct {
		per, patience time.Duration
		done          int64
	}{{30 * time.Second, 0, 4}, {2 * time.Minute, 0, 1}, {2 * time.Minute, 3 * time.Minute, 4}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.policy(ledger.Kind{Limits: scheduler.Limits{Rate: scheduler.Rate{Count: 1, Per: tt.per}}})
			r.addMany(4)
			rep, err := r.worker(Func(done)).Drain(t.Context(), tt.patience)
			if err != nil || rep.Outcomes[ledger.OutcomeDone] != tt.done || rep.Ready != 4-tt.done {
				t.Errorf("one in %s, patience %s: %+v, %v", tt.per, tt.patience, rep, err)
			}
		})
	}
}

// A drain waits for places that programs have, not for those that only people have.
func TestDrainUnderMaxRunning(t *testing.T) {
	for _, program := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.policy(ledger.Kind{Limits: scheduler.Limits{MaxRunning: 1}})
			r.addMany(3)
			if program {
				must.OK(t, r.Beat(t.Context(), ledger.Agent{Name: "other"}, time.Hour))
			}
			ls, err := r.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "other", Limit: 1, TTL: time.Hour})
			if err != nil || len(ls) != 1 {
				t.Fatal(err)
			}
			began := time.Now()
			go func() {
				elapse(10 * time.Minute)
				if err := r.Finish(t.Context(), ledger.Ending{Lease: ls[0], Result: ledger.Done(nil)})[0]; err != nil {
					t.Error(err)
				}
			}()
			rep := r.drain(Func(done))
			want, took := int64(2), time.Since(began)
			if !program {
				want = 0
			}
			if rep.Outcomes[ledger.OutcomeDone] != want || program != (took >= 10*time.Minute) {
				t.Errorf("held by a program: %v: after %s %+v", program, took, rep)
			}
			elapse(11 * time.Minute)
		})
	}
}

// Under limits a worker claims no more than can begin, since items that it only holds keep places from other workers. A
// place that becomes free is used at once.
func TestNothingIsClaimedAheadUnderLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.policy(ledger.Kind{Limits: scheduler.Limits{MaxRunningPerShardKey: 1}})
		var items []ledger.NewItem
		for i := range 40 {
			items = append(items, ledger.NewItem{Key: fmt.Sprint(i), ShardKey: fmt.Sprint(i % 2)})
		}
		r.add(items...)
		began := time.Now()
		rep := r.drain(takes(time.Second), func(c *Config) { c.Concurrency = 4 })
		if most := slices.Max(r.store.limits()); rep.Outcomes[ledger.OutcomeDone] != 40 || most > 4 {
			t.Errorf("%d at once asked for, %+v", most, rep)
		}
		if took := time.Since(began); took > 21*time.Second {
			t.Errorf("two at a time, a second each: took %s", took)
		}
	})
}
