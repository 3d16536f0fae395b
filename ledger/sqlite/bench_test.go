package sqlite_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

const batch = 500

func benchLedger(b *testing.B) *ledger.Ledger {
	s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "ledger.db"), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	l := ledger.New(s, ledger.Options{})
	b.Cleanup(func() { l.Close() })
	return l
}

// itemsOf are like files of an inbox, with a payload of 40 bytes.
func itemsOf(kind string, from, n int) []ledger.NewItem {
	items := make([]ledger.NewItem, n)
	for i := range items {
		items[i] = ledger.NewItem{Kind: kind, Key: fmt.Sprintf("/data/in/2026/11/20/users-%08d.csv", from+i), Payload: []byte(`{"delimiter":";","encoding":"iso-8859-1"}`)}
	}
	return items
}

func fillWith(b *testing.B, l *ledger.Ledger, n int) {
	for i := 0; i < n; i += 5000 {
		if _, err := l.Add(b.Context(), itemsOf("noop", i, min(5000, n-i))...); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAdd adds items in batches of 5,000; an operation is one item.
func BenchmarkAdd(b *testing.B) {
	for _, again := range []bool{false, true} {
		b.Run(map[bool]string{false: "new", true: "known"}[again], func(b *testing.B) {
			l := benchLedger(b)
			if again {
				fillWith(b, l, b.N)
			}
			b.ResetTimer()
			fillWith(b, l, b.N)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
		})
	}
}

// BenchmarkDrain claims and completes in batches of 500; an operation is one item.
func BenchmarkDrain(b *testing.B) {
	for name, result := range map[string]ledger.Result{"plain": {Outcome: ledger.OutcomeDone, Worker: "noop@1.0.0+0123456789ab"}, "output": ledger.Done([]byte(`{"rows":1}`)), "failed": ledger.Permanent(fmt.Errorf("broken"))} {
		b.Run(name, func(b *testing.B) {
			l := benchLedger(b)
			fillWith(b, l, b.N)
			b.ResetTimer()
			drain(b, l, result)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
		})
	}
}

// BenchmarkDrainResources is BenchmarkDrain where each item needs one to three resources of so many, in
// batches of 100 as there are so many to be had.
func BenchmarkDrainResources(b *testing.B) {
	for _, names := range []int{10_000, 100} {
		b.Run(fmt.Sprint(names), func(b *testing.B) {
			l := benchLedger(b)
			rnd := rand.New(rand.NewPCG(1, 2))
			for from := 0; from < b.N; from += 5000 {
				items := itemsOf("noop", from, min(5000, b.N-from))
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
			for n := 0; n < b.N; {
				n += drain(b, l, ledger.Done(nil))
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
		})
	}
}

func drain(b *testing.B, l *ledger.Ledger, result ledger.Result) (n int) {
	for {
		leases, err := l.Claim(b.Context(), ledger.Claim{Kind: "noop", Agent: "bench", Limit: batch})
		if err != nil {
			b.Fatal(err)
		}
		if len(leases) == 0 {
			return n
		}
		endings := make([]ledger.Ending, len(leases))
		for i, ls := range leases {
			endings[i] = ledger.Ending{Lease: ls, Result: result}
		}
		for _, err := range l.Finish(b.Context(), endings...) {
			if err != nil {
				b.Fatal(err)
			}
		}
		n += len(leases)
	}
}

// BenchmarkProcesses lets processes share the work, in batches of 100; an operation is one item.
func BenchmarkProcesses(b *testing.B) {
	for _, n := range []int{1, 2, 4} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			path := newPath(b)
			l := ledger.New(mustOpen(b, path, sqlite.Options{}), ledger.Options{})
			for i := 0; i < b.N; i += 5000 {
				if _, err := l.Add(b.Context(), itemsOf("k", i, min(5000, b.N-i))...); err != nil {
					b.Fatal(err)
				}
			}
			var all []*child
			for i := range n {
				c := spawn(b, "drain", path, fmt.Sprint("agent-", i)).start(b)
				c.expect(b, "ready")
				all = append(all, c)
			}
			b.ResetTimer()
			for _, c := range all {
				c.in.Close()
			}
			least := b.N
			for _, c := range all {
				did, err := strconv.Atoi(c.line(b))
				if err != nil {
					b.Fatal(err)
				}
				least = min(least, did)
				c.done(b)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
			b.ReportMetric(100*float64(least)/float64(b.N), "%least")
		})
	}
}

// BenchmarkOne adds, claims and completes a single item.
func BenchmarkOne(b *testing.B) {
	l := benchLedger(b)
	for i := 0; b.Loop(); i++ {
		if _, err := l.Add(b.Context(), itemsOf("noop", i, 1)...); err != nil {
			b.Fatal(err)
		}
		drain(b, l, ledger.Done(nil))
	}
}
