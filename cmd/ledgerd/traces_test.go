package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
)

// collector receives spans by OTLP over HTTP.
type collector struct {
	t   testing.TB
	url string

	mu       sync.Mutex
	spans    []*tracepb.Span
	services map[string]bool
}

func newCollector(t testing.TB) *collector {
	c := &collector{t: t, services: map[string]bool{}}
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	c.url = s.URL
	return c
}

// ServeHTTP implements http.Handler.
func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var got collectortrace.ExportTraceServiceRequest
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = proto.Unmarshal(body, &got)
	}
	if err != nil || r.Method+" "+r.URL.Path != "POST /v1/traces" {
		c.t.Errorf("%s %s: %v", r.Method, r.URL, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range got.ResourceSpans {
		c.services[attribute(of.Resource.Attributes, "service.name")] = true
		for _, scope := range of.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// attribute returns the value of a key, "" if there is none.
func attribute(all []*commonpb.KeyValue, key string) string {
	for _, a := range all {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

// tree returns each span as NAME < PARENT, or NAME ~ LINK; a parent that was not sent is the id of the trace.
func (c *collector) tree() (lines []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := map[string]string{}
	for _, s := range c.spans {
		names[string(s.SpanId)] = s.Name
	}
	name := func(trace, id []byte) string {
		if n, ok := names[string(id)]; ok {
			return n
		}
		return hex.EncodeToString(trace)[:4] + "-" + hex.EncodeToString(id)[:4]
	}
	for _, s := range c.spans {
		line := s.Name
		if len(s.ParentSpanId) > 0 {
			line += " < " + name(s.TraceId, s.ParentSpanId)
		}
		for _, l := range s.Links {
			line += " ~ " + name(l.TraceId, l.SpanId)
		}
		if outcome := attribute(s.Attributes, "ledgerd.outcome"); outcome != "" {
			line += " " + outcome
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

// ids returns the span ids with a name, in hexadecimal digits.
func (c *collector) ids(name string) (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.Name == name {
			all = append(all, hex.EncodeToString(s.SpanId))
		}
	}
	return all
}

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// traced is a config with a command that fails at its first attempt and prints the trace context that it gets.
const traced = `[kinds.job]
plugin = "exec"
input = "line"
backoff_base = "1s"
[kinds.job.with]
command = ["sh", "-c", "test -e DIR/failed || {{ : > DIR/failed; exit 75; }}; echo \"$TRACEPARENT $TRACESTATE\""]
`

// tracedAlways is traced without the failure.
var tracedAlways = strings.Replace(traced, "test -e", "true || test -e", 1)

// The spans of adding, by a command and over the API, of each attempt and of the program that works it make one tree
// for a collector, over several processes.
func TestTraces(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		c := newCollector(t)
		s := m.site(traced)
		m.env = append(m.env, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.url, "TRACEPARENT="+traceparent, "TRACESTATE=congo=1")
		m.run(failure.ExitOK, "add", "job", "one", "--config", s.config)
		m.run(failure.ExitOK, "work", "--drain", "--wait", "1m", "--config", s.config)
		var it struct {
			ID      int64
			TraceID string `json:"trace_id"`
			Output  string
		}
		must.OK(t, json.Unmarshal([]byte(m.run(failure.ExitOK, "ls", "-o", "jsonl", "--columns", "id,trace_id,output")),
			&it))
		a, base := m.api("--auth", "none")
		post := exec.Command("curl", "-fsS", "-H", "Content-Type: application/json", "-H", "traceparent: "+traceparent, "-d",
			`[{"kind":"job","key":"of the API"}]`, base+"/items")
		if out, err := post.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		m.stop(a, syscall.SIGTERM, failure.ExitOK)
		want := []string{"POST /api/v1/items < 4bf9-00f0", "add job < 4bf9-00f0", "add job < POST /api/v1/items",
			"process job < add job failed", "process job ~ add job done"}
		if d := cmp.Diff(want, c.tree()); d != "" {
			t.Errorf("-want +got\n%s", d)
		}
		if !c.services["ledgerd"] || len(c.services) != 1 {
			t.Errorf("services %v", c.services)
		}
		if it.TraceID != traceparent[3:35] {
			t.Errorf("the trace id is %q", it.TraceID)
		}
		// The second attempt is a separate trace. The program continues it.
		if parts := strings.Split(strings.TrimSpace(it.Output), "-"); len(parts) != 4 || parts[1] == it.TraceID ||
			!slices.Contains(c.ids("process job"), parts[2]) {
			t.Errorf("the program got %q, attempts are %q", it.Output, c.ids("process job"))
		}
		if text := m.run(failure.ExitOK, "show", fmt.Sprint(it.ID)); !strings.Contains(text, "trace     "+it.TraceID) {
			t.Errorf("show has no trace\n%s", text)
		}
		m.env = append(m.env, "LEDGERD_TRACE_URL=http://jaeger/trace/{trace_id}")
		text := m.run(failure.ExitOK, "show", fmt.Sprint(it.ID))
		if !strings.Contains(text, "trace     http://jaeger/trace/"+it.TraceID) {
			t.Errorf("show has no URL of the trace\n%s", text)
		}
	})
}

// Without a collector nothing is sent and a trace context is passed on. A collector that does not answer, or
// does not speak HTTP, causes a warning.
func TestTracingIsOptional(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		config := m.site(tracedAlways).config
		dead := httptest.NewServer(http.NotFoundHandler())
		dead.Close()
		plain := m.env
		for key, c := range map[string]struct {
			env     []string
			want    string
			warning string
		}{
			"off":  {nil, traceparent, ""},
			"away": {[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + dead.URL}, "", "spans could not be sent"},
			"gRPC": {[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + dead.URL, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, traceparent,
				"only http/protobuf"},
		} {
			m.env = append(append(slices.Clone(plain), "TRACEPARENT="+traceparent), c.env...)
			p := m.start("run", "job", key, "--config", config, "-o", "jsonl")
			m.ends(p, failure.ExitOK)
			if out := p.stdout.String(); !strings.Contains(out, c.want) || c.want == "" && strings.Contains(out, traceparent) {
				t.Errorf("%s: %s", key, out)
			}
			text := p.stderr.String()
			if c.warning == "" && strings.Contains(text, "WRN") || !strings.Contains(text, c.warning) {
				t.Errorf("%s: %s", key, text)
			}
		}
		// Items that are added without a trace context have none.
		m.env = plain
		m.run(failure.ExitOK, "run", "job", "plain", "--config", config)
		if got := m.run(failure.ExitOK, "ls", "-o", "jsonl", "--where", "key:plain", "--columns", "trace_id,output"); got !=
			`{"trace_id":"","output":null}`+"\n" {
			t.Errorf("%s", got)
		}
	})
}
