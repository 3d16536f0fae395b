package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/internal/source"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/locks"
)

// Health answers those who ask how the daemon is.
type Health struct {
	// Locks of the ledger; one of them is taken and given back to see whether it can be written to.
	Locks *locks.Manager
	Agent string
	// Kinds says of each kind that is to be worked what keeps it from being worked, "" for nothing.
	Kinds func() map[string]string
	// Sources says how the sources are.
	Sources func() []source.Status
	// Log is told why nothing can be written, and that it can again.
	Log *slog.Logger
	// Metrics answers /metrics.
	Metrics http.Handler

	mu       sync.Mutex
	stopping bool
	tried    time.Time
	problem  error // of the last try to write
}

const (
	// tryEvery is how long the answer of a try to write counts.
	tryEvery = 2 * time.Second
	// tryTime bounds it.
	tryTime = 5 * time.Second
	// tryTTL is that of the lock, if it cannot be given back.
	tryTTL = ledger.MinTTL
)

// Stop makes the daemon not ready: it is about to end.
func (h *Health) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopping = true
}

// Alive asks all parts how they are, and returns when they have answered.
func (h *Health) Alive() {
	h.Kinds()
	h.Sources()
}

var errStopping = errors.New("the daemon is stopping")

// Ready says why the daemon cannot work; nil if it can.
func (h *Health) Ready(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopping {
		return errStopping
	}
	if time.Since(h.tried) < tryEvery {
		return h.problem
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tryTime)
	defer cancel()
	before := h.problem
	h.problem = h.Locks.Do(ctx, "ready/"+h.Agent, locks.Options{Holder: h.Agent, TTL: tryTTL}, func(context.Context, *locks.Lock) error { return nil })
	if h.problem != nil {
		h.problem = fmt.Errorf("nothing can be written to the ledger: %w", h.problem)
	}
	switch {
	case h.problem != nil && before == nil:
		h.Log.Error("not ready", "error", h.problem)
	case h.problem == nil && before != nil:
		h.Log.Info("ready again")
	}
	h.tried = time.Now()
	return h.problem
}

// What /readyz says of problems. Their texts are in the log: anybody may ask here, and an error may quote
// what is not for anybody.
const (
	problemStopping  = "stopping"
	problemLedger    = "ledger_unwritable"
	problemNotWorked = "not_worked" // of a kind
	problemFailing   = "failing"    // of a source
)

// readiness is what /readyz answers.
type readiness struct {
	Ready   bool              `json:"ready"`
	Problem string            `json:"problem"`
	Kinds   map[string]string `json:"kinds"` // that are to be worked → "", or problemNotWorked
	Sources []source.Status   `json:"sources"`
}

// readiness asks all parts how they are.
func (h *Health) readiness(ctx context.Context) readiness {
	answer := readiness{Ready: true, Kinds: map[string]string{}, Sources: h.Sources()}
	for kind, problem := range h.Kinds() {
		if problem != "" {
			problem = problemNotWorked
		}
		answer.Kinds[kind] = problem
	}
	for i, s := range answer.Sources {
		if s.Error != "" {
			answer.Sources[i].Error = problemFailing
		}
	}
	switch err := h.Ready(ctx); {
	case errors.Is(err, errStopping):
		answer.Ready, answer.Problem = false, problemStopping
	case err != nil:
		answer.Ready, answer.Problem = false, problemLedger
	}
	return answer
}

// Handler answers /livez, /readyz and /metrics.
func (h *Health) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		h.Alive()
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		answer, code := h.readiness(r.Context()), http.StatusOK
		if !answer.Ready {
			code = http.StatusServiceUnavailable
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		_ = e.Encode(answer) // whoever asked may have gone
	})
	mux.Handle("GET /metrics", h.Metrics)
	return mux
}

// Serve answers on l until ctx ends.
func (h *Health) Serve(ctx context.Context, l net.Listener) error {
	s := &http.Server{Handler: h.Handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if s.Shutdown(closing) != nil {
		_ = s.Close() // who still asks is cut off
	}
	<-ended
	return nil
}
