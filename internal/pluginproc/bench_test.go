package pluginproc_test

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// No-op items through a real process, sent in batches of up to so many.
func BenchmarkStream(b *testing.B) {
	for _, batch := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) { benchmarkStream(b, batch) })
	}
}

func benchmarkStream(b *testing.B, batch int) {
	p, err := pluginproc.Start(b.Context(), self(b, "noop"))
	if err != nil {
		b.Fatal(err)
	}
	defer p.Kill()
	if _, err := p.Configure(b.Context(), &wire.ConfigureRequest{}); err != nil {
		b.Fatal(err)
	}
	got, messages := 0, 0
	done := make(chan struct{})
	s, err := p.Open(pluginproc.Events{Results: func(r []*wire.Result) {
		messages++
		if got += len(r); got == b.N {
			close(done)
		}
	}})
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for sent := 0; sent < b.N; {
		n, err := s.WaitCredits(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		items := make([]*wire.Item, min(n, batch, b.N-sent))
		for i := range items {
			items[i] = benchItem(int64(sent + i))
		}
		if err := s.Send(items); err != nil {
			b.Fatal(err)
		}
		sent += len(items)
	}
	<-done
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
	b.ReportMetric(float64(b.N)/float64(messages), "items/message")
}

func benchItem(id int64) *wire.Item {
	const path = "/data/in/2026/11/20/users-00000001.csv"
	return &wire.Item{
		Id: id, Attempt: 1, Kind: "noop", Key: path, IdempotencyKey: "noop/" + path + "/1",
		Payload: []byte(`{"path":"` + path + `"}`), LockId: make([]byte, 16),
	}
}
