package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/storetest/exclusivetest"
)

// concurrentResources lets many claimers work items that need one to three of a few resources, with
// leases that run out now and then.
func concurrentResources(t *testing.T, open Open) {
	l := ledger.New(open(t, nil), ledger.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const n, claimers, names = 300, 6, 8
	if err := l.SetKind(ctx, "test", ledger.Kind{Name: "k", MaxLost: 1000, MaxFailures: 1000,
		Backoff: ledger.Backoff{Base: time.Microsecond, Cap: time.Millisecond}}); err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	items := make([]ledger.NewItem, n)
	for i := range items {
		items[i] = ledger.NewItem{Kind: "k", Key: fmt.Sprint(i)}
		for range rnd.IntN(4) {
			items[i].Resources = append(items[i].Resources, fmt.Sprint("r", rnd.IntN(names)))
		}
	}
	if _, err := l.Add(ctx, items...); err != nil {
		t.Fatal(err)
	}
	var done atomic.Int64
	var wg sync.WaitGroup
	for c := range claimers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(c), 1))
			for done.Load() < n && ctx.Err() == nil {
				done.Add(holdSome(ctx, t, l, fmt.Sprint("agent-", c), rnd))
			}
		})
	}
	wg.Wait()
	if done.Load() != n {
		t.Fatalf("%d completions of %d items", done.Load(), n)
	}
	t.Logf("%d attempts", exclusivetest.Check(ctx, t, l))
	h := &harness{t: t, ctx: ctx, l: l}
	h.verify()
}

// holdSome claims a few items and ends most of them; it returns how many it completed.
func holdSome(ctx context.Context, t *testing.T, l *ledger.Ledger, agent string, rnd *rand.Rand) (completed int64) {
	ls, err := l.Claim(ctx, ledger.Claim{Kind: "k", Agent: agent, Limit: 1 + rnd.IntN(5), TTL: time.Second})
	if err != nil {
		t.Error(err)
	}
	if len(ls) == 0 {
		if _, err := l.Expire(ctx, 100); err != nil {
			t.Error(err)
		}
		if _, err := l.Promote(ctx, 100); err != nil {
			t.Error(err)
		}
	}
	for _, lease := range ls {
		r := ledger.Done(nil)
		switch p := rnd.IntN(100); {
		case p < 2:
			continue // lost
		case p < 12:
			r = ledger.Fail(errTest)
		case p < 20:
			r = ledger.Release()
		}
		err := l.Finish(ctx, ledger.Ending{Lease: lease, Result: r})[0]
		if errors.Is(err, ledger.ErrLeaseLost) && time.Now().After(lease.ExpiresAt) {
			continue // a busy machine was slower than the lease
		}
		if err != nil {
			t.Errorf("finish %s: %v", lease.Token(), err)
		} else if r.Outcome.Completed() {
			completed++
		}
	}
	return completed
}

// concurrentSets has claimers keep eight resources busy with items that need one of them, of which
// there are always more; leases are of a second. An item that needs all eight, and comes before those that
// wait, is leased within two leases.
func concurrentSets(t *testing.T, open Open) {
	l := ledger.New(open(t, nil), ledger.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const names, claimers, longest, most = 8, 4, time.Second, 5 * 2 * time.Second
	all := make([]string, names)
	var items []ledger.NewItem
	for i := range all {
		all[i] = fmt.Sprint("r", i)
		for k := range 2 { // one is leased, one waits
			items = append(items, ledger.NewItem{Kind: "k", Key: fmt.Sprint(i, " ", k), Resources: all[i : i+1]})
		}
	}
	if _, err := l.Add(ctx, items...); err != nil {
		t.Fatal(err)
	}
	busy := make(chan struct{}, claimers)
	working, stop := context.WithCancel(ctx)
	defer stop()
	var set atomic.Pointer[ledger.Lease]
	var wg sync.WaitGroup
	for c := range claimers {
		wg.Go(func() {
			keepBusy(working, t, l, fmt.Sprint("agent-", c), names/claimers, longest, busy, func(ls *ledger.Lease) {
				set.Store(ls)
				stop()
			})
		})
	}
	for range claimers {
		<-busy
	}
	added, err := l.Add(ctx, ledger.NewItem{Kind: "k", Key: "all", Priority: bounds.MinPriority, Resources: all})
	if err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	ls := set.Load()
	if ls == nil || ls.ID != added[0].ID {
		t.Fatal("the set was never leased")
	}
	took := ls.StartedAt.Sub(ls.CreatedAt)
	t.Logf("%d resources under full load, with leases of %v: leased after %v", names, longest, took)
	if took > most {
		t.Errorf("leased after %v, at most %v", took, most)
	}
}

// keepBusy holds up to n leases, each for as long as it may, and claims others as they end, until it
// is given an item that needs more than one resource. It tells busy once it holds as many as it wants.
func keepBusy(ctx context.Context, t *testing.T, l *ledger.Ledger, agent string, n int, hold time.Duration,
	busy chan<- struct{}, found func(*ledger.Lease)) {
	var held []*ledger.Lease
	var since []time.Time
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		for len(held) > 0 && time.Since(since[0]) >= hold {
			if err := l.Finish(ctx, ledger.Ending{Lease: held[0], Result: ledger.Done(nil)})[0]; err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			held, since = held[1:], since[1:]
		}
		if len(held) < n {
			got, err := l.Claim(ctx, ledger.Claim{Kind: "k", Agent: agent, Limit: n - len(held)})
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			for _, ls := range got {
				if len(ls.Resources) > 1 {
					found(ls)
				}
				held, since = append(held, ls), append(since, time.Now())
				if _, err := l.Add(ctx, ledger.NewItem{Kind: "k", Key: "after " + ls.Token(),
					Resources: ls.Resources}); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
			if len(held) == n && busy != nil {
				busy <- struct{}{}
				busy = nil
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}
