package sdk

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/ledgerd/ledgerd/sdk/wire"
)

// A function's context has the trace context of its item, alone and in a batch; a malformed one is ignored.
func TestTraceContext(t *testing.T) {
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	told := func(ctx context.Context) string {
		c := trace.SpanContextFromContext(ctx)
		if !c.IsValid() {
			return "none"
		}
		return c.TraceID().String() + " " + c.TraceState().String()
	}
	one := New("p", "1.0.0", func(ctx context.Context, _ *struct{}, _ Item[struct{}]) (string, error) {
		return told(ctx), nil
	})
	many := NewBatch("p", "1.0.0", func(_ context.Context, _ *struct{}, b *Batch[struct{}, string]) error {
		for i := range b.Items {
			b.Settle(i, told(b.Context(i)), nil)
		}
		return nil
	})
	for _, p := range []*Plugin{one, many} {
		l := serve(t, p, &wire.ConfigureRequest{})
		traced, plain, malformed := item(1, "{}"), item(2, "{}"), item(3, "{}")
		traced.Traceparent, traced.Tracestate = "00-"+id+"-00f067aa0ba902b7-01", "congo=1"
		malformed.Traceparent = "00-" + id
		l.send(traced, plain, malformed)
		l.until(3)
		for n, want := range map[int64]string{1: `"` + id + ` congo=1"`, 2: `"none"`, 3: `"none"`} {
			if got := string(l.results[n].Output); got != want {
				t.Errorf("item %d: %s, want %s", n, got, want)
			}
		}
		if err := l.close(); err != nil {
			t.Error(err)
		}
	}
}
