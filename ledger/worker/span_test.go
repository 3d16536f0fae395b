package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/ledger/tracing"
)

// tracedRig is a rig that records spans.
type tracedRig struct {
	*rig
	provider *sdktrace.TracerProvider
	spans    *tracetest.SpanRecorder
}

func newTracedRig(t *testing.T, o ...sdktrace.TracerProviderOption) *tracedRig {
	r := &tracedRig{spans: tracetest.NewSpanRecorder()}
	r.provider = sdktrace.NewTracerProvider(append(o, sdktrace.WithSpanProcessor(r.spans))...)
	r.rig = newRig(t)
	r.Ledger = ledger.New(memory.New(memory.Options{}), ledger.Options{Jitter: func() float64 { return 1 },
		TracerProvider: r.provider})
	return r
}

func (r *tracedRig) config(c *Config) { c.TracerProvider = r.provider }

// tree returns each ended span as NAME < PARENT, or NAME ~ LINK, with its end.
func (r *tracedRig) tree() (all []string) {
	names := map[trace.SpanID]string{}
	for _, s := range r.spans.Ended() {
		names[s.SpanContext().SpanID()] = s.Name()
	}
	for _, s := range r.spans.Ended() {
		line := s.Name()
		if s.Parent().IsValid() {
			line += " < " + names[s.Parent().SpanID()]
			if s.Parent().TraceID() != s.SpanContext().TraceID() {
				line += " of another trace"
			}
		}
		for _, l := range s.Links() {
			line += " ~ " + names[l.SpanContext.SpanID()]
		}
		for _, a := range s.Attributes() {
			if a.Key == "ledgerd.outcome" || a.Key == "error.type" {
				line += " " + a.Value.AsString()
			}
		}
		if s.Status().Code == codes.Error {
			line += ": " + s.Status().Description
		}
		all = append(all, line)
	}
	slices.Sort(all)
	return all
}

// The first attempt is a child of the span that added the item, and a later one has a link to it. Spans of the handler,
// and items that it emits, are children of the attempt.
func TestSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTracedRig(t)
		tracer := r.provider.Tracer("test")
		within, span := tracer.Start(t.Context(), "request")
		must.Do(t)(r.Add(within, ledger.NewItem{Kind: "k", Key: "fails once"}))
		span.End()
		r.add(ledger.NewItem{Key: "alone"}, ledger.NewItem{Kind: "j", Key: "not worked"})
		work := Func(func(ctx context.Context, ls *ledger.Lease) ledger.Result {
			_, span := tracer.Start(ctx, "handler of "+ls.Key)
			defer span.End()
			switch {
			case ls.Key == "fails once" && ls.Attempt == 1:
				res := ledger.Fail(errors.New("oops"))
				res.Code = "http_404"
				return res
			case ls.Key == "fails once":
				return ledger.Done(nil, ledger.NewItem{Kind: "k", Key: "emitted"})
			}
			return ledger.Done(nil)
		})
		// The span of the caller of the worker is not a parent of the attempts.
		outer, span := tracer.Start(t.Context(), "the program")
		must.Do(t)(r.worker(work, r.config).Drain(outer, time.Minute))
		span.End()
		want := []string{
			"add", // of two kinds
			"add k < request",
			"handler of alone < process k",
			"handler of emitted < process k",
			"handler of fails once < process k",
			"handler of fails once < process k",
			"process k < add done",
			"process k < add k failed http_404: oops",
			"process k < process k done",
			"process k ~ add k done",
			"request",
			"the program",
		}
		if d := cmp.Diff(want, r.tree()); d != "" {
			t.Errorf("-want +got\n%s", d)
		}
		for _, s := range r.spans.Ended() {
			if s.Name() != "process k" {
				continue
			}
			var has []string
			for _, a := range s.Attributes() {
				has = append(has, string(a.Key))
			}
			for _, key := range []string{"messaging.system", "messaging.operation.type", "messaging.operation.name",
				"messaging.destination.name", "messaging.message.id", "messaging.client.id", "ledgerd.attempt"} {
				if !slices.Contains(has, key) {
					t.Errorf("no %s in %v", key, has)
				}
			}
			if s.SpanKind() != trace.SpanKindConsumer {
				t.Errorf("kind %v", s.SpanKind())
			}
		}
	})
}

// Each round of a recurring item except the first is a trace of its own.
func TestSpansOfRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTracedRig(t)
		must.Do(t)(r.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "x", Every: "1m"}))
		stop := r.run(r.worker(Func(done), r.config))
		elapse(2*time.Minute + 10*time.Second)
		stop()
		want := []string{"add k", "process k < add k done", "process k ~ add k done", "process k ~ add k done"}
		if d := cmp.Diff(want, r.tree()); d != "" {
			t.Errorf("-want +got\n%s", d)
		}
	})
}

// A result that the ledger refuses makes a failed span; an item that was handed back before it began has none.
func TestSpansOfWhatIsNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTracedRig(t)
		id := r.add(ledger.NewItem{Key: "x"})[0]
		stop := r.run(r.worker(Func(func(ctx context.Context, ls *ledger.Lease) ledger.Result {
			if err := r.SetKind(context.Background(), "op", ledger.Kind{Name: "k", Paused: true}); err != nil {
				t.Error(err)
			}
			if _, err := r.ForceRelease(context.Background(), "op", ledger.IDs(id)); err != nil {
				t.Error(err)
			}
			return ledger.Done(nil)
		}), r.config))
		elapse(10 * time.Second)
		stop()
		got := r.tree()
		if len(got) != 2 || !strings.HasPrefix(got[1], "process k < add k done not_recorded: ") {
			t.Errorf("%q", got)
		}
	})
}

// Without a tracer, handlers get the trace context in which the item was added. An unsampled trace stays unsampled.
func TestTraceContextIsPassedOn(t *testing.T) {
	const text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00 congo=1"
	for _, traced := range []bool{false, true} {
		t.Run(fmt.Sprint(traced), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newTracedRig(t)
				r.add(ledger.NewItem{Key: "traced", Trace: text}, ledger.NewItem{Key: "plain"})
				got := map[string]string{}
				work := handleFunc(func(ctx context.Context, ls *ledger.Lease, settle func(ledger.Result)) {
					got[ls.Key] = tracing.Of(ctx)
					settle(ledger.Done(nil))
				})
				if traced {
					r.drain(work, r.config)
				} else {
					r.drain(work)
				}
				own := got["traced"]
				if !traced && own != text || traced && (own == text || tracing.ID(own) != tracing.ID(text) ||
					!strings.HasSuffix(own, "-00 congo=1")) {
					t.Errorf("the handler's is %q", own)
				}
				for _, s := range r.spans.Ended() {
					if s.SpanContext().TraceID().String() == tracing.ID(text) {
						t.Errorf("%s is recorded, and not sampled", s.Name())
					}
				}
			})
		})
	}
}
