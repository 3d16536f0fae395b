package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	otelcodes "go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/ledger/tracing"
)

// trace puts the trace context of the headers of a request into ctx: added items keep it. With a tracer it also starts
// a span of the request, and the returned function ends the span.
func (a *API) trace(ctx context.Context, route *Route, w http.ResponseWriter, r *http.Request) (context.Context,
	http.ResponseWriter, func()) {
	caller := tracing.Join(r.Header.Get(tracing.Parent), strings.Join(r.Header.Values(tracing.State), ","))
	ctx = tracing.Into(ctx, caller)
	if a.tracer == nil || !route.traced() {
		return ctx, w, func() {}
	}
	path := Base + route.Path
	ctx, span := a.tracer.Start(ctx, route.Method+" "+path, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(semconv.HTTPRequestMethodKey.String(r.Method), semconv.HTTPRoute(path),
			semconv.URLPath(r.URL.Path), semconv.URLScheme("http")))
	answered := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	return ctx, answered, func() {
		span.SetAttributes(semconv.HTTPResponseStatusCode(answered.status))
		if answered.status >= http.StatusInternalServerError { // others are the caller's mistakes
			span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(answered.status)))
			span.SetStatus(otelcodes.Error, "")
		}
		span.End()
	}
}

// traced reports whether requests of a route have spans. Workers and other ledgerds ask again and again, and a stream
// has no end.
func (r *Route) traced() bool { return r.Scope != access.Work && !r.own && r.Timeout != streamTime }

// statusWriter remembers the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
