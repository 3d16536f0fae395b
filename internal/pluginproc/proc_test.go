package pluginproc_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/sdk"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

type pathIn struct {
	Path string `json:"path" input:"file"`
}

func noop() *sdk.Plugin {
	return sdk.New("noop", "0.1.0", func(_ context.Context, _ *struct{}, _ sdk.Item[pathIn]) (struct{}, error) {
		return struct{}{}, nil
	})
}

func configure(t testing.TB, p *pluginproc.Proc, config string) {
	t.Helper()
	problems, err := p.Configure(t.Context(), &wire.ConfigureRequest{Config: []byte(config)})
	if err != nil || len(problems) > 0 {
		t.Fatalf("Configure: %v %v", problems, err)
	}
}

func TestRound(t *testing.T) {
	p, err := pluginproc.Start(t.Context(), self(t, "noop"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := p.Describe(t.Context(), &wire.DescribeRequest{})
	if err != nil || d.Name != "noop" {
		t.Fatal(d, err)
	}
	configure(t, p, `{}`)
	results := make(chan *wire.Result, 1)
	s, err := p.Open(pluginproc.Events{Results: func(r []*wire.Result) { results <- r[0] }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.WaitCredits(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Send([]*wire.Item{{Id: 1, Attempt: 2, Payload: []byte(`{"path":"/a"}`), LockId: []byte("x")}}); err != nil {
		t.Fatal(err)
	}
	r := <-results
	if r.Outcome != wire.Result_OUTCOME_DONE || r.Id != 1 || r.Attempt != 2 || string(r.LockId) != "x" {
		t.Error(r)
	}
	if left := p.Stop(t.Context(), time.Second); len(left) > 0 {
		t.Error(left)
	}
	if p.Err() != nil {
		t.Error(p.Err())
	}
}

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
	configure(b, p, `{}`)
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
			items[i] = &wire.Item{
				Id: int64(sent + i), Attempt: 1, Kind: "noop", Key: "/data/in/2026/11/20/users-00000001.csv",
				IdempotencyKey: "noop//data/in/2026/11/20/users-00000001.csv/1",
				Payload:        []byte(`{"path":"/data/in/2026/11/20/users-00000001.csv"}`), LockId: make([]byte, 16),
			}
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
