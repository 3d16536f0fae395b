package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
)

// files are n items like those of a big inbox, from a number on.
func files(from, n int) []ledger.NewItem {
	items := make([]ledger.NewItem, n)
	for i := range items {
		items[i] = ledger.NewItem{Kind: "noop", Key: fmt.Sprintf("/data/in/2026/11/20/users-%08d.csv", from+i), Payload: []byte(`{"path":"/data/in/2026/11/20/users.csv"}`)}
	}
	return items
}

func addAll(b *testing.B, l *ledger.Ledger, n int) {
	for from := 0; from < n; from += 5000 {
		if _, err := l.Add(b.Context(), files(from, min(5000, n-from))...); err != nil {
			b.Fatal(err)
		}
	}
}

// settled is a ledger with b.N items of which the server has nothing to tidy up any more: it would
// do that while the drain is measured.
func settled(b *testing.B) *ledger.Ledger {
	b.Helper()
	r := newRig(b)
	addAll(b, r.Ledger, b.N)
	for _, sql := range []string{"VACUUM ANALYZE " + r.schema + ".ledger_items", "VACUUM ANALYZE " + r.schema + ".ledger_backlog", "CHECKPOINT"} {
		if _, err := r.pool.Exec(b.Context(), sql); err != nil {
			b.Fatal(err)
		}
	}
	return r.Ledger
}

func rate(b *testing.B) { b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s") }

// BenchmarkAdd adds b.N new items in batches of 5,000, one client.
func BenchmarkAdd(b *testing.B) {
	l := newRig(b).Ledger
	b.ResetTimer()
	addAll(b, l, b.N)
	rate(b)
}

// BenchmarkAddKnown adds b.N items that are known.
func BenchmarkAddKnown(b *testing.B) {
	l := newRig(b).Ledger
	addAll(b, l, b.N)
	b.ResetTimer()
	addAll(b, l, b.N)
	rate(b)
}

// BenchmarkDrain claims and completes b.N items in batches of 500: two claimers, each with
// somebody who finishes what it claimed.
func BenchmarkDrain(b *testing.B) {
	l := settled(b)
	b.ResetTimer()
	drain(b, l, 2, 500, func(*ledger.Lease) ledger.Result {
		return ledger.Result{Outcome: ledger.OutcomeDone, Worker: "noop@1+0"}
	})
	rate(b)
}

// BenchmarkDrainPinned is BenchmarkDrain while somebody's transaction, open since before it began,
// keeps the index entries of all that was finished.
func BenchmarkDrainPinned(b *testing.B) {
	l := settled(b)
	tx, err := pgtest.Pool(b).BeginTx(b.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		b.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(b.Context()))
	if _, err := tx.Exec(b.Context(), "SELECT pg_current_xact_id()"); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	drain(b, l, 2, 500, func(*ledger.Lease) ledger.Result {
		return ledger.Result{Outcome: ledger.OutcomeDone, Worker: "noop@1+0"}
	})
	rate(b)
}

// BenchmarkDrainOutputs is BenchmarkDrain with an output for each item.
func BenchmarkDrainOutputs(b *testing.B) {
	l := settled(b)
	b.ResetTimer()
	drain(b, l, 2, 500, func(ls *ledger.Lease) ledger.Result {
		return ledger.Result{Outcome: ledger.OutcomeDone, Worker: "noop@1+0", Output: []byte(ls.Key)}
	})
	rate(b)
}

// BenchmarkDrainResources is BenchmarkDrain where each item needs one to three resources of so many, in
// batches of 100.
func BenchmarkDrainResources(b *testing.B) {
	for _, names := range []int{10_000, 100} {
		b.Run(fmt.Sprint(names), func(b *testing.B) {
			l := newRig(b).Ledger
			rnd := rand.New(rand.NewPCG(1, 2))
			for from := 0; from < b.N; from += 5000 {
				items := files(from, min(5000, b.N-from))
				for i := range items {
					for range 1 + rnd.IntN(3) {
						items[i].Resources = append(items[i].Resources, fmt.Sprint("resource ", rnd.IntN(names)))
					}
				}
				if _, err := l.Add(b.Context(), items...); err != nil {
					b.Fatal(err)
				}
			}
			b.ResetTimer()
			for left := int64(1); left > 0; { // a claim may find all that is left with others
				drain(b, l, 2, 100, func(*ledger.Lease) ledger.Result {
					return ledger.Result{Outcome: ledger.OutcomeDone, Worker: "noop@1+0"}
				})
				st, err := l.Standing(b.Context(), "noop")
				if err != nil {
					b.Fatal(err)
				}
				left = st.Ready
			}
			rate(b)
		})
	}
}

// BenchmarkDrainFailing ends every attempt by the rules: each item fails for good.
func BenchmarkDrainFailing(b *testing.B) {
	l := settled(b)
	b.ResetTimer()
	drain(b, l, 2, 500, func(*ledger.Lease) ledger.Result {
		return ledger.Result{Outcome: ledger.OutcomeFailed, Final: true, Code: "broken", Error: "it is broken"}
	})
	rate(b)
}

func drain(b *testing.B, l *ledger.Ledger, claimers, batch int, end func(*ledger.Lease) ledger.Result) {
	var wg sync.WaitGroup
	for c := range claimers {
		work := make(chan []*ledger.Lease, 4)
		wg.Go(func() {
			defer close(work)
			for {
				ls, err := l.Claim(b.Context(), ledger.Claim{Kind: "noop", Agent: fmt.Sprint("agent-", c), Limit: batch, TTL: 10 * time.Minute})
				if err != nil {
					b.Error(err)
				}
				if len(ls) == 0 {
					return
				}
				work <- ls
			}
		})
		wg.Go(func() {
			for ls := range work {
				e := make([]ledger.Ending, len(ls))
				for i, lease := range ls {
					e[i] = ledger.Ending{Lease: lease, Result: end(lease)}
				}
				for _, err := range l.Finish(context.WithoutCancel(b.Context()), e...) {
					if err != nil {
						b.Error(err)
						break
					}
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkIdleClaim claims where nothing is ready.
func BenchmarkIdleClaim(b *testing.B) {
	l := newRig(b).Ledger
	addAll(b, l, 1)
	drain(b, l, 1, 1, func(*ledger.Lease) ledger.Result { return ledger.Done(nil) })
	for b.Loop() {
		if _, err := l.Claim(b.Context(), ledger.Claim{Kind: "noop", Agent: "a", Limit: 100}); err != nil {
			b.Fatal(err)
		}
	}
}
