package app

import (
	"context"
	"os"
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/ledgerd/ledgerd/internal/otlp"
	"github.com/ledgerd/ledgerd/internal/version"
	"github.com/ledgerd/ledgerd/ledger/tracing"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

// traces are the spans that this run records.
type traces struct {
	once     sync.Once
	provider *otlp.Provider // nil: none
}

// TracerProvider returns what sends spans to the collector that the environment names; nil if it names none. A mistake
// in these variables is a warning only: the command runs without tracing.
func (a *App) TracerProvider(ctx context.Context) trace.TracerProvider {
	a.traces.once.Do(func() {
		log := a.Log
		provider, err := otlp.Start(ctx, version.String(), func(err error) {
			log.Warn("spans could not be sent to the collector", "error", redact.Text(err.Error()))
		})
		if err != nil {
			log.Warn("nothing is traced: " + err.Error())
		}
		a.traces.provider = provider
	})
	if a.traces.provider == nil {
		return nil
	}
	return a.traces.provider
}

// EndTraces sends the spans that are left.
func (a *App) EndTraces() {
	if p := a.traces.provider; p != nil {
		p.End()
	}
}

// Traced adds the trace context of the environment (TRACEPARENT and TRACESTATE), for a command that adds items.
func Traced(ctx context.Context) context.Context {
	return tracing.Into(ctx, tracing.Join(os.Getenv("TRACEPARENT"), os.Getenv("TRACESTATE")))
}
