package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/internal/source"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/health"
	"github.com/ledgerd/ledgerd/ledger/locks"
)

// Health answers those who ask how the daemon is.
type Health struct {
	// Locks of the ledger; one of them is taken and given back to see whether it can be written to.
	Locks *locks.Manager
	Agent string
	// Kinds is the code of what keeps each kind to work from being worked, "" for nothing.
	Kinds func() map[string]string
	// Sources returns the state of the sources.
	Sources func() []source.Status
	// Log gets a line when nothing can be written, with the reason, and when it can again.
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
	tryTTL = bounds.MinTTL
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

// Ready explains why the daemon cannot work; nil if it can.
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
	name := "ready/" + h.Agent
	if len(name) > bounds.MaxLockName {
		name = fmt.Sprintf("ready/%x", sha256.Sum256([]byte(h.Agent)))
	}
	h.problem = h.Locks.Do(ctx, name, locks.Options{Holder: h.Agent, TTL: tryTTL},
		func(context.Context, *locks.Lock) error { return nil })
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

// The codes of problems in /readyz. Their texts are in the log: /readyz is open to all, and an error
// may quote private text.
const (
	problemStopping = "stopping"
	problemLedger   = "ledger_unwritable"
	problemFailing  = "failing" // of a source
)

// Codes of kinds; others are health.NoPlugin and those of errors.
const (
	KindStarting   = "starting"   // its plugin is being started for the first time
	KindRestarting = "restarting" // its plugin has ended, and is started again
	KindCrashing   = "crashing"   // its plugin crashes again and again
)

// unworked names the kinds that are to be worked and are not; nil if there are none.
func unworked(kinds map[string]string) error {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		if code := kinds[name]; code != "" && code != KindRestarting && code != health.NoPlugin {
			names = append(names, fmt.Sprintf("%s (%s)", name, code))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("not worked here: %s", strings.Join(names, ", "))
}

// readiness is what /readyz answers.
type readiness struct {
	Ready   bool              `json:"ready"`
	Problem string            `json:"problem"`
	Kinds   map[string]string `json:"kinds"` // that are to be worked → code of what keeps them from it
	Sources []source.Status   `json:"sources"`
}

// readiness asks all parts how they are.
func (h *Health) readiness(ctx context.Context) readiness {
	answer := readiness{Kinds: h.Kinds(), Sources: h.Sources()}
	for i, s := range answer.Sources {
		if s.Error != "" {
			answer.Sources[i].Error = problemFailing
		}
	}
	switch err := h.Ready(ctx); {
	case errors.Is(err, errStopping):
		answer.Problem = problemStopping
	case err != nil:
		answer.Problem = problemLedger
	default:
		if err := unworked(answer.Kinds); err != nil {
			answer.Problem = err.Error() // names of kinds with their codes
		}
	}
	answer.Ready = answer.Problem == ""
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
		answerReady(w, h.readiness(r.Context()))
	})
	mux.Handle("GET /metrics", h.Metrics)
	return mux
}

// answerReady writes the answer of /readyz.
func answerReady(w http.ResponseWriter, answer readiness) {
	w.Header().Set("Content-Type", "application/json")
	if !answer.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(answer) // the client may have gone
}
