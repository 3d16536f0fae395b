package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/ledger/tracing"
)

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// An item gets the trace context of its own fields, else of the request. A malformed or too long one is ignored. A
// claim returns it.
func TestTraceContextOfItems(t *testing.T) {
	s := newSite(t)
	s.add("k", "first") // the kind
	other := strings.Replace(parent, "4bf9", "abcd", 1)
	long := strings.Repeat("f", 4000)
	for i, c := range []struct {
		headers []func(*http.Request)
		fields  string
		want    string
	}{
		{nil, "", ""},
		{[]func(*http.Request){header("traceparent", parent)}, "", parent},
		{[]func(*http.Request){header("traceparent", parent), header("tracestate", "congo=1")}, "", parent + " congo=1"},
		{[]func(*http.Request){header("traceparent", parent), func(r *http.Request) {
			r.Header["Tracestate"] = []string{"a=1", "b=2"}
		}}, "", parent + " a=1,b=2"},
		{[]func(*http.Request){header("traceparent", parent)}, `,"traceparent":"` + other + `"`, other},
		{nil, `,"traceparent":"` + other + `","tracestate":"a=1"`, other + " a=1"},
		{[]func(*http.Request){header("traceparent", parent)}, `,"traceparent":"x"`, parent},
		{[]func(*http.Request){header("traceparent", long)}, "", ""},
		{[]func(*http.Request){header("traceparent", parent+long)}, "", ""},
		{[]func(*http.Request){header("traceparent", "00-\x00\xff-01")}, "", ""},
		{[]func(*http.Request){header("traceparent", parent), header("tracestate", "a="+long)}, "", parent},
		{nil, `,"traceparent":"` + long + `"`, ""},
		{nil, `,"traceparent":"` + parent + `","tracestate":"` + long + `"`, parent},
	} {
		key := fmt.Sprint("item ", i)
		var added struct{ Items []struct{ ID int64 } }
		s.do("all", http.MethodPost, "/items", fmt.Sprintf(`[{"kind":"k","key":%q%s}]`, key, c.fields), c.headers...).ok(&added)
		it, err := s.l.Get(t.Context(), added.Items[0].ID)
		must.OK(t, err)
		if it.Trace != c.want {
			t.Errorf("%d: %q, want %q", i, it.Trace, c.want)
		}
		var shown struct {
			TraceID string `json:"trace_id"`
		}
		s.do("all", http.MethodGet, fmt.Sprint("/items/", it.ID), "").ok(&shown)
		if shown.TraceID != tracing.ID(c.want) {
			t.Errorf("%d: shown as %q", i, shown.TraceID)
		}
	}
	var got struct{ Leases []map[string]json.RawMessage }
	s.do("all", http.MethodPost, "/claims", `{"kind":"k","agent":"a","limit":100}`).ok(&got)
	var with int
	for _, ls := range got.Leases {
		if string(ls["tracestate"]) == `"congo=1"` && string(ls["traceparent"]) == `"`+parent+`"` {
			with++
		}
	}
	if with != 1 {
		t.Errorf("%d leases have the context that they should have", with)
	}
}

// Requests have spans, in the trace of the caller; those of workers and of events have none.
func TestSpans(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	s := siteOver(t, ledger.New(memory.New(memory.Options{}), ledger.Options{TracerProvider: provider}))
	s.api.tracer = tracing.NewTracer(provider)
	s.add("k", "first")
	s.do("all", http.MethodPost, "/items", `[{"kind":"k","key":"x"}]`, header("traceparent", parent))
	s.do("all", http.MethodGet, "/items/77", "").fails(http.StatusNotFound, "not_found")
	s.do("none", http.MethodGet, "/items", "")
	s.do("all", http.MethodPost, "/claims", `{"kind":"k","agent":"a"}`)
	var got []string
	for _, span := range spans.Ended() {
		line := span.Name() + " " + span.SpanKind().String()
		if span.Parent().IsValid() {
			line += " of " + span.Parent().TraceID().String()[:4]
		}
		for _, a := range span.Attributes() {
			if a.Key == "http.response.status_code" {
				line += " " + a.Value.Emit()
			}
		}
		got = append(got, line+" "+span.Status().Code.String())
	}
	slices.Sort(got)
	want := []string{"GET /api/v1/items server 403 Unset", "GET /api/v1/items/{id} server 404 Unset",
		"POST /api/v1/items server of 4bf9 200 Unset", "add k producer Unset", "add k producer of 4bf9 Unset"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}
