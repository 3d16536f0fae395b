package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
)

// slow is a store that takes a second for each question.
type slow struct{ ledger.Store }

func (s slow) Count(ctx context.Context, f ledger.Filter) (int64, error) {
	time.Sleep(time.Second)
	return s.Store.Count(ctx, f)
}

func (s slow) Tally(ctx context.Context, f ledger.Filter, column string, each func(ledger.Tally) error) error {
	time.Sleep(time.Second)
	return s.Store.Tally(ctx, f, column, each)
}

func (s slow) Records(ctx context.Context, q ledger.RecordQuery) ([]ledger.Record, error) {
	time.Sleep(time.Second)
	return s.Store.Records(ctx, q)
}

func (s slow) Ended(ctx context.Context, q ledger.EndedQuery) ([]ledger.Ended, error) {
	time.Sleep(time.Second)
	return s.Store.Ended(ctx, q)
}

// TestBoundedLooks: a question with a time ends soon after it, says that it has not seen everything, and has
// seen a part; without a time it sees everything.
func TestBoundedLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const items, within = 6_000, 1500 * time.Millisecond
		ctx := t.Context()
		store := memory.New(memory.Options{})
		quick, l := ledger.New(store, ledger.Options{}), ledger.New(slow{store}, ledger.Options{})
		for i := 0; i < items; i += ledger.MaxBatch {
			batch := make([]ledger.NewItem, min(ledger.MaxBatch, items-i))
			for j := range batch {
				batch[j] = ledger.NewItem{Kind: "k", Key: fmt.Sprint(i + j), Payload: []byte(`{"a":1}`)}
			}
			if _, err := quick.Add(ctx, batch...); err != nil {
				t.Fatal(err)
			}
		}
		for {
			leases, err := quick.Claim(ctx, ledger.Claim{Kind: "k", Agent: "a", Limit: ledger.MaxBatch})
			if err != nil {
				t.Fatal(err)
			}
			if len(leases) == 0 {
				break
			}
			var endings []ledger.Ending
			for _, lease := range leases {
				endings = append(endings, ledger.Ending{Lease: lease, Result: ledger.Permanent(errors.New("no"))})
			}
			if err := errors.Join(quick.Finish(ctx, endings...)...); err != nil {
				t.Fatal(err)
			}
		}
		all := ledger.Filter{ErrorHas: "no"}
		failed := all.And(ledger.Filter{Outcomes: []ledger.Outcome{ledger.OutcomeFailed}})
		field, err := ledger.ParseFilter("payload.a:1", time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		count := func(f ledger.Filter) func(time.Duration) (int64, bool, error) {
			return func(d time.Duration) (int64, bool, error) { return l.CountUpTo(ctx, f, 0, d) }
		}
		groups := func(f ledger.Filter) func(time.Duration) (int64, bool, error) {
			return func(d time.Duration) (n int64, whole bool, err error) {
				groups, whole, err := l.Groups(ctx, f, "a", d)
				for _, g := range groups {
					n += g.Failed
				}
				return n, whole, err
			}
		}
		walk := func(w ledger.Walk) func(time.Duration) (int64, bool, error) {
			return func(d time.Duration) (n int64, whole bool, err error) {
				w := w
				w.Time = d
				for _, err := range l.Walk(ctx, &w) {
					if err != nil {
						return n, false, err
					}
					n++
				}
				return n, !w.Cut, nil
			}
		}
		for name, ask := range map[string]func(time.Duration) (int64, bool, error){
			"count": count(all), "count by field": count(field), "groups": groups(all), "groups by field": groups(field),
			"by id": walk(ledger.Walk{Filter: all}), "by end": walk(ledger.Walk{Filter: all, Order: ledger.ByEnd, Desc: true}),
			"failed by end": walk(ledger.Walk{Filter: failed, Order: ledger.ByEnd}), "by key": walk(ledger.Walk{Filter: all, Order: "key", Top: items}),
		} {
			began := time.Now()
			n, whole, err := ask(within)
			if took := time.Since(began); err != nil || whole || n == 0 || n == items || took > 3*within {
				t.Errorf("%s: %d of %d, all %t, after %v, %v; want a part within %v", name, n, items, whole, took, err, within)
			}
			if n, whole, err := ask(0); err != nil || !whole || n != items {
				t.Errorf("%s: %d of %d, all %t, %v; want all", name, n, items, whole, err)
			}
		}
	})
}
