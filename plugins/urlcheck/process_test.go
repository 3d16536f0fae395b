package urlcheck

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

// All of this goes through the process that ledgerd would start.

func TestProcess(t *testing.T) {
	leakFree(t)
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ok":
			w.Header().Set("Content-Type", "text/plain")
		case "/moved":
			http.Redirect(w, r, "/gone", http.StatusMovedPermanently)
		case "/broken":
			w.WriteHeader(http.StatusInternalServerError)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	h := sdktest.New(t, Plugin(), sdktest.Options{Config: map[string]any{"allow_private": true}})
	for _, tt := range []struct {
		payload       map[string]any
		outcome, code string
		final         bool
		status        int
	}{
		{map[string]any{"url": srv.URL + "/ok"}, "done", "", false, 200},
		{map[string]any{"url": srv.URL + "/moved"}, "failed", "http_404", true, 404},
		{map[string]any{"url": srv.URL + "/broken"}, "failed", "http_500", false, 500},
		{map[string]any{"url": "file:///etc/passwd"}, "failed", "bad_url", true, 0},
		{map[string]any{"url": srv.URL, "accept": []string{"2xx"}}, "failed", "payload", true, 0},
		{map[string]any{"url": srv.URL, "accept": []string{}}, "failed", "payload", true, 0},
	} {
		r := h.Run(sdktest.Task{Payload: tt.payload})
		if r.Outcome != tt.outcome || r.Code != tt.code || r.Final != tt.final {
			t.Errorf("%v: got %s %q %q, final %v; want %s %q, final %v", tt.payload, r.Outcome, r.Code, r.Error, r.Final,
				tt.outcome, tt.code, tt.final)
		}
		if tt.status == 0 {
			continue
		}
		if out := sdktest.Decode[Out](t, r); out.Status != tt.status {
			t.Errorf("%v: output %s, want status %d", tt.payload, r.Output, tt.status)
		}
	}
}

func TestProcessRefusesPrivate(t *testing.T) {
	leakFree(t)
	var asked atomic.Int32
	srv := serve(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	h := sdktest.New(t, Plugin(), sdktest.Options{})
	r := h.Run(sdktest.Task{Payload: In{URL: srv.URL}})
	if r.Outcome != "failed" || r.Code != "private_address" || !r.Final || asked.Load() > 0 {
		t.Errorf("got %+v after %d requests, want private_address and none", r, asked.Load())
	}
}

func TestProcessSnoozes(t *testing.T) {
	leakFree(t)
	srv := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "70")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	h := sdktest.New(t, Plugin(), sdktest.Options{Config: map[string]any{"allow_private": true}})
	r := h.Run(sdktest.Task{Payload: In{URL: srv.URL + "/1"}})
	if r.Outcome != "snoozed" || r.Delay != 70*time.Second || r.Code != "http_503" || r.AtMost != 3 ||
		!strings.Contains(r.Error, "status 503") {
		t.Errorf("got %+v, want snoozed for 70s, three times in a row, with what the host said", r)
	}
}

func TestConformance(t *testing.T) { sdktest.Conformance(t, Plugin()) }
