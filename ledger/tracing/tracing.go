// Package tracing carries trace contexts of the W3C through a ledger. The context of the program that adds an item is
// stored with the item as one text: a traceparent, and after a space the tracestate if there is one. The worker of the
// item continues the trace. A malformed context is ignored, as https://www.w3.org/TR/trace-context/ asks, and never
// stored.
//
// The package needs the API of OpenTelemetry only. The program that brings a TracerProvider decides which spans are
// recorded and where they go.
package tracing

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Names of the two parts of a context: as fields of messages and JSON, and in lower case as HTTP headers.
const (
	Parent = "traceparent"
	State  = "tracestate"
)

// Bounds of a context, in bytes. A longer tracestate is left out.
const (
	MaxParent = 55
	MaxState  = 512
	Max       = MaxParent + 1 + MaxState
)

// maxRead is how long a traceparent may be that is read: later versions of the format may append fields.
const maxRead = 256

// Join returns the text of a context; "" if parent is malformed. A state that is malformed or too long is left out.
func Join(parent, state string) string {
	if parent == "" || len(parent) > maxRead {
		return ""
	}
	if len(state) > MaxState {
		state = ""
	}
	return Of(Into(context.Background(), parent+" "+state))
}

// Split is the opposite of Join.
func Split(text string) (parent, state string) {
	parent, state, _ = strings.Cut(text, " ")
	return parent, state
}

// Clean returns the text of a context in the form of Join; "" if it is malformed.
func Clean(text string) string { return Join(Split(text)) }

// Of returns the text of the span context that ctx has; "" if it has none.
func Of(ctx context.Context) string {
	parts := Headers(ctx)
	if state := parts[State]; state != "" && len(state) <= MaxState {
		return parts[Parent] + " " + state
	}
	return parts[Parent]
}

// Headers returns the parts of the span context that ctx has, by their names; nil if it has none.
func Headers(ctx context.Context) map[string]string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return nil
	}
	parts := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, parts)
	return parts
}

// Context returns the span context of a text; an invalid one if the text is malformed.
func Context(text string) trace.SpanContext {
	return trace.SpanContextFromContext(Into(context.Background(), text))
}

// Into returns ctx with the span context of a text, as one that came from another process. It returns ctx itself if
// the text is empty or malformed.
func Into(ctx context.Context, text string) context.Context {
	if text == "" {
		return ctx
	}
	parent, state := Split(text)
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{Parent: parent, State: state})
}

// ID returns the trace id in a text: 32 hexadecimal digits, or "".
func ID(text string) string {
	parts := strings.SplitN(text, "-", 3)
	if len(parts) < 3 {
		return ""
	}
	return parts[1]
}
