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

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
)

// concurrent: many claimers work one backlog by the database's clock, with short leases that expire. Every item must
// be completed once, and no attempt may be leased twice.
func concurrent(t *testing.T, open Open) {
	l := ledger.New(open(t, nil), ledger.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const n, claimers = 400, 6
	must.OK(t, l.SetKind(ctx, "test", ledger.Kind{Name: "k", MaxLost: 1000, MaxFailures: 1000,
		Backoff: ledger.Backoff{Base: time.Microsecond, Cap: time.Millisecond}}))
	items := make([]ledger.NewItem, n)
	for i := range items {
		items[i] = ledger.NewItem{Kind: "k", Key: fmt.Sprint(i)}
	}
	must.Do(t)(l.Add(ctx, items...))
	var done atomic.Int64
	var grants sync.Map // id.attempt → true
	var wg sync.WaitGroup
	for c := range claimers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(c), 1))
			for done.Load() < n && ctx.Err() == nil {
				done.Add(claimSome(ctx, t, l, fmt.Sprint("agent-", c), rnd, &grants))
			}
		})
	}
	wg.Wait()
	if done.Load() != n {
		t.Fatalf("%d completions of %d items", done.Load(), n)
	}
	h := &harness{t: t, ctx: ctx, l: l}
	left, err := l.Count(ctx, ledger.Filter{States: []ledger.State{ledger.StateDone}})
	if err != nil || left != n {
		t.Fatalf("%d items are done, %v", left, err)
	}
	h.verify()
}

// claimSome claims a few items, ends most of them in different ways, and returns how many it completed.
func claimSome(ctx context.Context, t *testing.T, l *ledger.Ledger, agent string, rnd *rand.Rand,
	grants *sync.Map) int64 {
	ls, err := l.Claim(ctx, ledger.Claim{Kind: "k", Agent: agent, Limit: 1 + rnd.IntN(20), TTL: time.Second})
	if err != nil {
		t.Error(err)
		return 0
	}
	if len(ls) == 0 {
		if _, err := l.Expire(ctx, 100); err != nil {
			t.Error(err)
		}
		if _, err := l.Promote(ctx, 100); err != nil {
			t.Error(err)
		}
	}
	var e []ledger.Ending
	for _, lease := range ls {
		if _, twice := grants.LoadOrStore(lease.Token(), true); twice {
			t.Errorf("%s was granted twice", lease.Token())
		}
		switch p := rnd.IntN(100); {
		case p < 70:
			e = append(e, ledger.Ending{Lease: lease, Result: ledger.Done(nil)})
		case p < 80:
			e = append(e, ledger.Ending{Lease: lease, Result: ledger.Done([]byte(lease.Token()))})
		case p < 90:
			e = append(e, ledger.Ending{Lease: lease, Result: ledger.Fail(errTest)})
		case p < 96:
			e = append(e, ledger.Ending{Lease: lease, Result: ledger.Release()})
		}
	}
	var completed int64
	for i, err := range l.Finish(ctx, e...) {
		switch {
		case err == nil && e[i].Result.Outcome.Completed():
			completed++
		case err != nil && !errors.Is(err, ledger.ErrLeaseLost):
			t.Errorf("finish %s: %v", e[i].Lease.Token(), err)
		}
	}
	return completed
}

// concurrentAdds: several callers add the same keys at once, in different orders.
func concurrentAdds(t *testing.T, open Open) {
	l := ledger.New(open(t, nil), ledger.Options{})
	ctx := t.Context()
	const n, clients, rounds = 60, 6, 8
	var added atomic.Int64
	for r := range rounds {
		var ids sync.Map
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for c := range clients {
			wg.Go(func() {
				items := make([]ledger.NewItem, n)
				for i, k := range rand.New(rand.NewPCG(uint64(c), uint64(r))).Perm(n) {
					items[i] = ledger.NewItem{Kind: "k", Scope: fmt.Sprint(r), Key: fmt.Sprint(k)}
				}
				<-begin
				got, err := l.Add(ctx, items...)
				if err != nil {
					t.Error(err)
					return
				}
				for i, a := range got {
					if a.Verdict == ledger.VerdictAdded {
						added.Add(1)
					}
					if id, seen := ids.LoadOrStore(items[i].Key, a.ID); seen && id != a.ID {
						t.Errorf("key %s has ids %d and %d", items[i].Key, id, a.ID)
					}
				}
			})
		}
		close(begin)
		wg.Wait()
	}
	if added.Load() != n*rounds {
		t.Errorf("%d verdicts added for %d items", added.Load(), n*rounds)
	}
	h := &harness{t: t, ctx: ctx, l: l}
	h.verify()
}

// concurrentResume: one person asks for work in several windows at once. Together they get no more than the limit.
func concurrentResume(t *testing.T, open Open) {
	l := ledger.New(open(t, nil), ledger.Options{})
	ctx := t.Context()
	const people, windows, limit = 10, 4, 5
	items := make([]ledger.NewItem, people*windows*limit)
	for i := range items {
		items[i] = ledger.NewItem{Kind: "k", Key: fmt.Sprint(i)}
	}
	must.Do(t)(l.Add(ctx, items...))
	for p := range people {
		var wg sync.WaitGroup
		for range windows {
			wg.Go(func() {
				if _, err := l.Claim(ctx, ledger.Claim{Kind: "k", Agent: fmt.Sprint("person-", p), Limit: limit,
					Resume: true}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n, err := l.Count(ctx, ledger.Filter{Agents: []string{fmt.Sprint("person-", p)}}); err != nil || n != limit {
			t.Errorf("a person holds %d items after asking for %d, %v", n, limit, err)
		}
	}
}
