package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/stats"
	"github.com/ledgerd/ledgerd/ledger/tracing"
)

// Config of a worker. Ledger is required.
type Config struct {
	Ledger Ledger
	// Handlers by kind. Every worker keeps the ledger in order, for all kinds: it makes items ready when
	// they are due, takes back expired leases and prunes. A worker without handlers does only that.
	Handlers map[string]Handler
	// Quiet is for programs that run in many processes at a time. The worker has no handlers and no heartbeat, and keeps
	// the ledger in order only every few seconds.
	Quiet bool
	// Lends is for a program through which others reach the ledger. While it was stopped they could not renew their
	// leases, so after its start it leaves expired leases alone for a third of Lease, as after an outage.
	Lends bool
	// Agent names this worker; "" means host/pid/random. No other live worker may have the same name.
	Agent string
	// Version of the program, as the list of agents shows it.
	Version string
	// Concurrency is the most items of one kind that are worked at a time; 0 means one per CPU.
	Concurrency int
	// Kinds has settings for single kinds.
	Kinds map[string]KindConfig
	// Lease is the TTL of claims, at least 5 s; 0 means one minute. A lease is renewed after a third of it.
	Lease time.Duration
	// Shard is the part of the items that this worker claims; the zero value means all.
	Shard scheduler.Shard
	// MaxItems is how many items are claimed at most. Run and Drain end when the ends of these are recorded; 0 means no
	// limit.
	MaxItems int
	// Grace is how long running items may go on once ctx has ended; 0 means 30 s.
	Grace time.Duration
	// Poll is the longest time between two checks of an idle ledger, at most 1 s; 0 means 1 s.
	Poll time.Duration
	// GiveUp ends Run and Drain with the error after the ledger has been unavailable, or its disk full, for so long and
	// no result was recorded meanwhile; 0 means never.
	GiveUp time.Duration
	Logger *slog.Logger // nil means slog.Default()
	// TracerProvider gets a span of each attempt, from its beginning until its end is recorded; nil means no
	// spans. Handlers get the trace context of the item in both cases.
	TracerProvider trace.TracerProvider
	// Observe is called for every ended attempt, from many goroutines; it must not block.
	Observe func(Event)
	// Meter measures claims and expired leases; may be nil.
	Meter Meter
	// Absent returns the kinds that this program should work but cannot work at present. They have no handler here. The
	// worker's heartbeat reports them to other processes. May be nil.
	Absent func() map[string]Absence
}

// Absence is the reason why this program does not work a kind that it should work.
type Absence struct {
	Again time.Time // when the program tries the kind again, by time.Now
	// Config is a JSON object without secrets: the settings of this program for the kind, if other processes work the
	// kind with other settings. "" means that there is another reason.
	Config string
	// Code is the class of the reason, Error the reason in words, without secrets. At is the time when the program
	// found it.
	Code  string
	Error string
	At    time.Time
}

// Meter measures a worker. Its methods are called from many goroutines and must not block.
type Meter interface {
	// Claimed is called after each claim that the ledger answered. items is 0 if there was no item.
	Claimed(kind string, items int, took time.Duration)
	// Expired is called after this worker has ended leases of any kind and holder, because the holder had not renewed
	// them in time, or its process is gone.
	Expired(leases int)
}

// KindConfig is the part of Config for one kind.
type KindConfig struct {
	// Concurrency replaces Config.Concurrency; 0 means that Config.Concurrency holds.
	Concurrency int
	// Timeout of one attempt replaces the timeout of the kind's policy; 0 means that the policy holds.
	Timeout time.Duration
	// Definition names the handler and its settings for the list of agents; see ledger.Kind.
	Definition string
}

// Event is one ended attempt.
type Event struct {
	Lease  *ledger.Lease
	Result ledger.Result // as it was reported to the ledger
	// Recorded is the outcome that the ledger recorded. State is the state of the item after that, and Round
	// the state of its round. All three are empty if the ledger did not take the result. If Recorded is
	// OutcomeRecorded, State and Round are not known. If the handler ended the lease with FinishTx, Result and these
	// three are those of that call.
	Recorded ledger.Outcome
	State    ledger.State
	Round    ledger.RoundState
	Err      error         // why the ledger did not take the result: ledger.ErrLeaseLost, or another error
	Waited   time.Duration // due → start
	Worked   time.Duration // start → end; 0 if it was handed back unstarted
}

// Accepted reports whether the ledger took the result.
func (e Event) Accepted() bool { return e.Recorded != "" }

const (
	minLease     = 5 * time.Second
	defaultGrace = 30 * time.Second
	maxPoll      = time.Second
)

// Worker is made by New and run once.
type Worker struct {
	config    Config
	log       *slog.Logger
	finisher  *finisher
	exchanger exchanger // the ledger, if it is one; else nil
	quota     quota
	outage    outage
	lost      unrecorded
	clock     clock // of the database
	results   results
	sums      stats.Sums      // of ended attempts, for AddTallies
	tracer    *tracing.Tracer // nil: no spans

	mu     sync.Mutex
	kinds  []*lane     // replaced as a whole by Take and Drop
	loops  *goroutines // of a running worker; nil before and after
	closed bool        // the worker takes no more kinds
	beats  sync.Mutex  // held while a heartbeat is made and sent

	used  atomic.Bool
	life  context.Context // of calls to the ledger; ends last
	base  context.Context // of handlers: has the caller's values but not its span or its end
	look  chan struct{}   // signal: a lane has become idle
	due   chan struct{}   // signal: an item waits that did not wait before
	hurry chan struct{}   // closed by StopNow
	once  sync.Once       // closes hurry
	broke chan error      // the error after which the worker cannot continue; holds one
}

// New checks the config. Its error is a *ledger.InvalidError.
func New(c Config) (*Worker, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	c.Agent = cmp.Or(c.Agent, agentName())
	c.Concurrency = cmp.Or(c.Concurrency, runtime.GOMAXPROCS(0))
	c.Lease = cmp.Or(c.Lease, bounds.DefaultTTL)
	c.Grace = cmp.Or(c.Grace, defaultGrace)
	c.Poll = cmp.Or(c.Poll, maxPoll)
	w := &Worker{config: c, log: cmp.Or(c.Logger, slog.Default()), look: make(chan struct{}, 1),
		due: make(chan struct{}, 1), hurry: make(chan struct{}), broke: make(chan error, 1),
		tracer: tracing.NewTracer(c.TracerProvider)}
	w.outage.log = w.log
	w.quota.most = c.MaxItems
	w.finisher = newFinisher(w)
	w.exchanger, _ = c.Ledger.(exchanger)
	for _, kind := range slices.Sorted(maps.Keys(c.Handlers)) {
		w.kinds = append(w.kinds, newLane(w, kind, c.Handlers[kind], c.Kinds[kind]))
	}
	return w, nil
}

func (c *Config) check() error {
	if l, is := c.Ledger.(*ledger.Ledger); c.Ledger == nil || is && l == nil {
		return bad("ledger", "is missing")
	}
	for kind, h := range c.Handlers {
		if err := checkKind(kind, h, c.Kinds[kind]); err != nil {
			return err
		}
	}
	for kind := range c.Kinds {
		if c.Handlers[kind] == nil {
			return bad("kinds", "%q has no handler", kind)
		}
	}
	switch s := c.Shard; {
	case c.Quiet && len(c.Handlers) > 0:
		return bad("quiet", "a worker with handlers needs a heartbeat")
	case c.Concurrency < 0:
		return bad("concurrency", "%d, must not be negative", c.Concurrency)
	case c.Lease != 0 && (c.Lease < minLease || c.Lease > bounds.MaxTTL):
		return bad("lease", "%s, must be %s … %s", c.Lease, minLease, bounds.MaxTTL)
	case c.Grace < 0:
		return bad("grace", "%s, must not be negative", c.Grace)
	case c.Poll < 0 || c.Poll > maxPoll:
		return bad("poll", "%s, must be 0 … %s", c.Poll, maxPoll)
	case c.GiveUp < 0:
		return bad("give_up", "%s, must not be negative", c.GiveUp)
	case c.MaxItems < 0:
		return bad("max_items", "%d, must not be negative", c.MaxItems)
	case s != (scheduler.Shard{}) && (s.Count < 1 || s.Count > scheduler.Slots || s.Index < 0 || s.Index >= s.Count):
		return bad("shard", "%d/%d, must be 0 ≤ index < count ≤ %d", s.Index, s.Count, scheduler.Slots)
	}
	return nil
}

func bad(field, format string, args ...any) error {
	return &ledger.InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

func checkKind(kind string, h Handler, k KindConfig) error {
	f, is := h.(Func)
	switch err := (ledger.Kind{Name: kind}).CheckName(); {
	case err != nil:
		return err
	case h == nil || is && f == nil:
		return bad("handlers", "the one of kind %q is nil", kind)
	case k.Concurrency < 0:
		return bad("concurrency", "%d of kind %q, must not be negative", k.Concurrency, kind)
	case k.Timeout < 0:
		return bad("timeout", "%s of kind %q, must not be negative", k.Timeout, kind)
	}
	return nil
}

// agentName returns a name that no other process has.
func agentName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return fmt.Sprintf("%.200s/%d/%06x", host, os.Getpid(), rand.IntN(1<<24))
}

// record handles the answer to the end of a task, and removes the task.
func (w *Worker) record(t *task, e ledger.Ending, err error) {
	ev := Event{Lease: t.lease, Result: e.Result, Err: err}
	if !t.began.IsZero() {
		ev.Waited = max(0, t.lease.StartedAt.Sub(t.lease.Due)+t.began.Sub(t.claimed))
		ev.Worked = t.over.Sub(t.began)
	}
	unrecorded := e.Result.Code == codeUnrecorded && e.Result.NoReport
	if unrecorded && errors.Is(err, ledger.ErrLeaseLost) { // the handler ended it without FinishTx
		e, err = ledger.Ending{Lease: t.lease, Result: Recorded(), Recorded: OutcomeRecorded}, nil
		ev.Result, ev.Err = e.Result, nil
	}
	switch {
	case err == nil:
		ev.Recorded, ev.State, ev.Round = e.Recorded, e.State, e.Round
		w.results.add(e)
		w.outage.endRecorded()
		w.addTally(t, &ev)
		if e.State == ledger.StateWaiting {
			signal(w.due)
		}
	case errors.Is(err, ledger.ErrLeaseLost):
		t.log().Warn("the lease had been lost: the result is not recorded", "outcome", e.Result.Outcome)
	default:
		t.log().Debug("the result could not be recorded", "outcome", e.Result.Outcome, "error", err)
		w.lost.add(err)
	}
	t.endSpan(ev)
	if w.config.Observe != nil {
		w.config.Observe(ev)
	}
	l := t.lane
	l.mu.Lock()
	l.remove(t)
	left := len(l.tasks)
	l.mu.Unlock()
	if left == 0 {
		signal(w.look)
		signal(l.changed)
	}
}

// done reports whether the quota is used up and all ends are recorded.
func (w *Worker) done() bool { return w.quota.spent() && w.holds() == 0 }

// holds returns how many items this worker holds.
func (w *Worker) holds() (n int) {
	for _, l := range w.lanes() {
		n += l.holds()
	}
	return n
}

// idle reports whether this worker holds nothing, and nothing is to be claimed as far as it knows.
func (w *Worker) idle() bool {
	return !slices.ContainsFunc(w.lanes(), func(l *lane) bool { return !l.idle() })
}

// failed records the result of a call to the ledger and reports whether it failed. It stops the worker if retrying
// cannot help, or if the outage has lasted for Config.GiveUp.
func (w *Worker) failed(call string, err error) bool {
	if w.life.Err() != nil || errors.Is(err, context.Canceled) { // it was cancelled
		return err != nil
	}
	if !fatal(err) { // waiting may help
		w.outage.note(call, err)
	}
	if fatal(err) || err != nil && w.config.GiveUp > 0 && w.outage.lasts(w.config.GiveUp) {
		select {
		case w.broke <- err:
		default:
		}
	}
	return err != nil
}

// fatal reports whether waiting cannot help against an error.
func fatal(err error) bool {
	return errors.Is(err, ledger.ErrInvalid) || errors.Is(err, ledger.ErrSchema) || errors.Is(err, ledger.ErrNoLedger) ||
		errors.Is(err, ledger.ErrDenied) || errors.Is(err, ledger.ErrDamaged)
}
