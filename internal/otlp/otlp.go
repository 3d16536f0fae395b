// Package otlp sends the spans of the program to a collector, by OTLP over HTTP. Only this package uses the SDK of
// OpenTelemetry; other packages get a TracerProvider.
//
// The environment decides, by the variables of OpenTelemetry's specification: without OTEL_EXPORTER_OTLP_ENDPOINT or
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT nothing is recorded and nothing is sent.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/ledgerd/ledgerd/sdk/redact"
)

// EndTime bounds how long the end of a program waits for the last spans to be sent.
const EndTime = 2 * time.Second

// warnEvery is the least time between two warnings about spans that could not be sent.
const warnEvery = time.Minute

// Provider is a TracerProvider that sends its spans to the collector.
type Provider struct{ *sdktrace.TracerProvider }

// Start makes a provider, or returns nil if the environment names no collector. An error means that a variable of the
// environment has a wrong value. If spans cannot be sent, they are lost, and warn is called from any goroutine.
func Start(ctx context.Context, version string, warn func(error)) (*Provider, error) {
	endpoint := first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
	if endpoint == "" || os.Getenv("OTEL_SDK_DISABLED") == "true" || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil
	}
	if u, err := url.Parse(endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("the endpoint %q of OTEL_EXPORTER_OTLP_ENDPOINT is no URL such as http://localhost:4318",
			redact.Text(endpoint))
	}
	switch p := first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); p {
	case "", "http/protobuf", "http/json":
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %q: only http/protobuf and http/json are supported", p)
	}
	otel.SetErrorHandler(&handler{warn: warn})
	about, err := resource.New(ctx, resource.WithAttributes(semconv.ServiceName("ledgerd"),
		semconv.ServiceVersion(version)), resource.WithTelemetrySDK(), resource.WithHost(), resource.WithProcessPID(),
		resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, err
	}
	return &Provider{sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))}, nil
}

// first returns the value of the first variable that is not empty.
func first(names ...string) string {
	for _, name := range names {
		if v := os.Getenv(name); v != "" {
			return v
		}
	}
	return ""
}

// End sends the remaining spans, for at most EndTime.
func (p *Provider) End() {
	ctx, cancel := context.WithTimeout(context.Background(), EndTime)
	defer cancel()
	if err := p.Shutdown(ctx); err != nil {
		otel.Handle(err)
	}
}

// handler passes errors on, the first one and then at most one a minute.
type handler struct {
	warn func(error)

	mu   sync.Mutex
	next time.Time
}

// Handle implements otel.ErrorHandler.
func (h *handler) Handle(err error) {
	h.mu.Lock()
	due := time.Now().After(h.next)
	if due {
		h.next = time.Now().Add(warnEvery)
	}
	h.mu.Unlock()
	if due {
		h.warn(err)
	}
}
