package tracing

import (
	"context"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Scope is the name of ledgerd's instrumentation.
const Scope = "github.com/ledgerd/ledgerd"

// Attributes are those of OpenTelemetry's conventions for messaging (their status is Development:
// https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/), and ledgerd's own below "ledgerd.". Keys and
// payloads of items are not among them: they may be about people.
const (
	attemptKey = attribute.Key("ledgerd.attempt")
	outcomeKey = attribute.Key("ledgerd.outcome")
	sourceKey  = attribute.Key("ledgerd.source")
)

const system = "ledgerd"

// maxStatus bounds the text of an error in a span, in bytes.
const maxStatus = 512

// Tracer makes the spans of a ledger. On a nil Tracer, Add and Look make no span; Start and
// Process must not be called.
type Tracer struct{ tracer trace.Tracer }

// NewTracer makes a tracer; nil for no provider.
func NewTracer(p trace.TracerProvider) *Tracer {
	if p == nil {
		return nil
	}
	return &Tracer{p.Tracer(Scope, trace.WithSchemaURL(semconv.SchemaURL))}
}

// Start starts a span with a name.
func (t *Tracer) Start(ctx context.Context, name string, o ...trace.SpanStartOption) (context.Context, trace.Span) {
	return t.tracer.Start(ctx, name, o...)
}

// Add starts the span of a call that adds items; kind is "" if they have several kinds. The function ends it.
func (t *Tracer) Add(ctx context.Context, kind string, items int) (context.Context, func(error)) {
	if t == nil {
		return ctx, func(error) {}
	}
	ctx, span := t.tracer.Start(ctx, strings.TrimSpace("add "+kind), trace.WithSpanKind(trace.SpanKindProducer))
	if span.IsRecording() {
		span.SetAttributes(semconv.MessagingSystemKey.String(system), semconv.MessagingOperationTypeSend,
			semconv.MessagingOperationName("add"), semconv.MessagingBatchMessageCount(items))
		if kind != "" {
			span.SetAttributes(semconv.MessagingDestinationName(kind))
		}
	}
	return ctx, func(err error) { end(span, err) }
}

// Look starts the span of one reading of a source, as a trace of its own. The function ends it.
func (t *Tracer) Look(ctx context.Context, source string) (context.Context, func(error)) {
	if t == nil {
		return ctx, func(error) {}
	}
	ctx, span := t.tracer.Start(ctx, "source look", trace.WithNewRoot(), trace.WithAttributes(sourceKey.String(source)))
	return ctx, func(err error) { end(span, err) }
}

func end(span trace.Span, err error) {
	if err != nil {
		fail(span, "", err.Error())
	}
	span.End()
}

// fail marks a span as failed; class is a code such as http_404.
func fail(span trace.Span, class, text string) {
	kind := semconv.ErrorTypeOther
	if class != "" {
		kind = semconv.ErrorTypeKey.String(class)
	}
	span.SetAttributes(kind)
	span.SetStatus(codes.Error, strings.ToValidUTF8(text[:min(len(text), maxStatus)], ""))
}

// Attempt is an attempt of an item that begins.
type Attempt struct {
	Kind    string
	Item    int64
	Attempt int64
	Agent   string
	Trace   string // of the program that added the item
	First   bool   // the first attempt since the item was added or opened again: it continues the trace
	Began   time.Time
}

// Process starts the span of an attempt. The first attempt is a child of the span that added the item. A later one
// begins a trace of its own, with a link to that span: what is tried again after days, or every day, would make a trace
// without end (conventions for messaging, "Trace structure").
func (t *Tracer) Process(ctx context.Context, a Attempt) (context.Context, trace.Span) {
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(a.Began)}
	switch {
	case a.Trace == "":
		options = append(options, trace.WithNewRoot())
	case a.First:
		ctx = Into(ctx, a.Trace)
	default:
		options = append(options, trace.WithNewRoot(), trace.WithLinks(trace.Link{SpanContext: Context(a.Trace)}))
	}
	ctx, span := t.tracer.Start(ctx, "process "+a.Kind, options...)
	if span.IsRecording() {
		span.SetAttributes(semconv.MessagingSystemKey.String(system), semconv.MessagingOperationTypeProcess,
			semconv.MessagingOperationName("process"), semconv.MessagingDestinationName(a.Kind),
			semconv.MessagingMessageID(strconv.FormatInt(a.Item, 10)), semconv.MessagingClientID(a.Agent),
			attemptKey.Int64(a.Attempt))
	}
	return ctx, span
}

// Ended is how an attempt ended.
type Ended struct {
	Outcome string
	Failed  bool
	Code    string // class of the failure
	Error   string
	At      time.Time
}

// EndProcess ends the span of an attempt.
func EndProcess(span trace.Span, e Ended) {
	if span.IsRecording() {
		span.SetAttributes(outcomeKey.String(e.Outcome))
		if e.Failed {
			fail(span, e.Code, e.Error)
		}
	}
	span.End(trace.WithTimestamp(e.At))
}
