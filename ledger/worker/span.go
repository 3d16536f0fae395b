package worker

import (
	"cmp"
	"context"
	"slices"

	"go.opentelemetry.io/otel/trace"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/tracing"
)

// withoutSpan returns ctx without the span of the caller: items are not a part of the call that runs the worker.
func withoutSpan(ctx context.Context) context.Context {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return trace.ContextWithSpanContext(ctx, trace.SpanContext{})
}

// startSpan returns ctx with the span of the attempt, or without a tracer with the trace context of the item.
func (t *task) startSpan(ctx context.Context) context.Context {
	ls := t.lease
	if t.lane.worker.tracer == nil {
		return tracing.Into(ctx, ls.Trace)
	}
	ctx, t.span = t.lane.worker.tracer.Process(ctx, tracing.Attempt{Kind: ls.Kind, Item: ls.ID, Attempt: ls.Attempt,
		Agent: ls.Agent, Trace: ls.Trace, First: ls.First(), Began: t.began})
	return ctx
}

// endSpan ends the span of an attempt, also if the end of the attempt could not be recorded.
func (t *task) endSpan(e Event) {
	if t.span == nil {
		return
	}
	end := tracing.Ended{Outcome: string(cmp.Or(e.Recorded, e.Result.Outcome)), Code: e.Result.Code, Error: e.Result.Error,
		At: t.over}
	switch {
	case e.Err != nil:
		end.Failed, end.Code, end.Error = true, "not_recorded", e.Err.Error()
	case e.Recorded.FailedOrUncertain():
		end.Failed = true
	}
	tracing.EndProcess(t.span, end)
}

// withTrace returns emitted items with the trace context of the handler.
func withTrace(ctx context.Context, emitted []ledger.NewItem) []ledger.NewItem {
	of := tracing.Of(ctx)
	if of == "" {
		return emitted
	}
	emitted = slices.Clone(emitted)
	for i := range emitted {
		emitted[i].Trace = cmp.Or(emitted[i].Trace, of)
	}
	return emitted
}
