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

// Health answers requests about the health of the daemon.
type Health struct {
	// Locks are the named locks of the ledger. Ready takes and releases one of them, to test whether the ledger can be
	// written to.
	Locks *locks.Manager
	Agent string // names the lock and holds it
	// Kinds returns, for each kind to work, the code of the reason why it is not worked; "" if it is worked.
	Kinds func() map[string]string
	// Sources returns the state of the sources.
	Sources func() []source.Status
	// Log gets a line when the ledger cannot be written to, and when it can be again.
	Log *slog.Logger
	// Metrics answers /metrics.
	Metrics http.Handler

	mu       sync.Mutex
	stopping bool
	tried    time.Time // of the last test
	problem  error     // of the last test
}

const (
	testEvery = 2 * time.Second // the result of a test of the ledger is used again until then
	testTime  = 5 * time.Second // bounds a test
	testTTL   = bounds.MinTTL   // of the lock, if it cannot be released
)

// Stop makes Ready return an error from now on: the daemon is about to end.
func (h *Health) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopping = true
}

// Alive returns when all parts have answered. It hangs if a part does.
func (h *Health) Alive() {
	h.Kinds()
	h.Sources()
}

var errStopping = errors.New("the daemon is stopping")

// Ready returns why the daemon cannot work: it is stopping, or the ledger cannot be written to. It is nil if it can.
func (h *Health) Ready(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopping {
		return errStopping
	}
	if time.Since(h.tried) < testEvery {
		return h.problem
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), testTime)
	defer cancel()
	before := h.problem
	name := "ready/" + h.Agent
	if len(name) > bounds.MaxLockName {
		name = fmt.Sprintf("ready/%x", sha256.Sum256([]byte(h.Agent)))
	}
	h.problem = h.Locks.Do(ctx, name, locks.Options{Holder: h.Agent, TTL: testTTL},
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

// The codes of problems in /readyz. The log has the errors: anyone may ask /readyz, and errors may quote private text.
const (
	problemStopping = "stopping"
	problemLedger   = "ledger_unwritable"
	problemFailing  = "failing" // of a source
)

// Codes of the reason why a kind is not worked; another is health.NoPlugin. If its plugin could not be started, the
// reason has the code of the error.
const (
	KindStarting   = "starting"   // its plugin is being started for the first time
	KindRestarting = "restarting" // its plugin has ended, and is started again
	KindCrashing   = "crashing"   // its plugin crashes again and again
)

// unworked returns an error that names the kinds that should be worked here and are not; nil if there are none.
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
	Kinds   map[string]string `json:"kinds"` // as Health.Kinds returns them
	Sources []source.Status   `json:"sources"`
}

// readiness returns the answer of /readyz, from the answers of all parts.
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
	_ = e.Encode(answer) // fails if the client has closed the connection
}
