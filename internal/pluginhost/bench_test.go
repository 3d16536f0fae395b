package pluginhost

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// BenchmarkDrain works items that take no time through a real process, on SQLite.
func BenchmarkDrain(b *testing.B) {
	ctx := b.Context()
	store, err := sqlite.Open(ctx, filepath.Join(b.TempDir(), "ledger.db"), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	l := ledger.New(store, ledger.Options{})
	defer l.Close()
	for from := 0; from < b.N; from += 5000 {
		items := make([]ledger.NewItem, min(5000, b.N-from))
		for i := range items {
			items[i] = ledger.NewItem{Kind: "actor", Key: fmt.Sprint(from + i), Payload: []byte(`{"do":"answer"}`)}
		}
		if _, err := l.Add(ctx, items...); err != nil {
			b.Fatal(err)
		}
	}
	h, err := Start(ctx, Config{Spec: Spec{Place: place(b)}})
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close(0)
	w, err := worker.New(worker.Config{Ledger: l, Handlers: map[string]worker.Handler{"actor": h}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	rep, err := w.Drain(context.WithoutCancel(ctx), 0)
	if err != nil || rep.Outcomes[ledger.OutcomeDone] != int64(b.N) {
		b.Fatal(rep, err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
}
