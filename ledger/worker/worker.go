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

	"github.com/ledgerd/ledgerd/ledger"
)

// Config of a worker. Ledger is required.
type Config struct {
	Ledger *ledger.Ledger
	// Handlers by kind. A worker without any only keeps the ledger in order: it promotes what is
	// due, takes back expired leases and prunes, of all kinds, as every worker does.
	Handlers map[string]Handler
	// Agent names this process; "" means host/pid/random. It must not be shared.
	Agent string
	// Version of the program, for those who ask who works.
	Version string
	// Concurrency is the most items in Handle at a time, per kind; 0 means one per CPU.
	Concurrency int
	// Kinds says what is different for some kinds.
	Kinds map[string]KindConfig
	// Lease is the TTL of claims, at least 5 s; 0 means one minute. Leases are renewed at a third.
	Lease time.Duration
	// Shard restricts what is claimed.
	Shard ledger.Shard
	// MaxItems ends Run or Drain when so many items have been claimed and their ends recorded;
	// 0 means no limit.
	MaxItems int
	// Grace is how long running items may go on once ctx has ended; 0 means 30 s.
	Grace time.Duration
	// Poll is the longest time between two looks at an idle ledger, at most 1 s; 0 means 1 s.
	Poll time.Duration
	// GiveUp is how long the ledger may be away, or its disk full, before Run and Drain end with
	// the error; 0 means that they wait for it for ever.
	GiveUp time.Duration
	Logger *slog.Logger // nil means slog.Default()
	// Observe is called for every ended attempt, from many goroutines; it must not block.
	Observe func(Event)
	// Meter gets what the worker does besides attempts; may be nil.
	Meter Meter
	// Absent are kinds that this program is to work besides and cannot; others are told so. May be nil.
	Absent func() map[string]Absence
}

// Absence is why a kind is not worked that is to be.
type Absence struct {
	Again time.Time // when it is tried again, by time.Now
	// Config are the settings that it is to be worked with, where others work it with other ones: a JSON
	// object without secrets. "" means that something else is in the way.
	Config string
}

// Meter measures a worker. Its methods are called from many goroutines and must not block.
type Meter interface {
	// Claimed is called after each claim that the ledger answered, also with no item.
	Claimed(kind string, items int, took time.Duration)
	// Expired is called after leases were taken from holders that had not renewed them in time, of all
	// kinds and whoever held them.
	Expired(leases int)
}

// KindConfig is what Config says of one kind.
type KindConfig struct {
	// Concurrency replaces Config.Concurrency; 0 means it does not.
	Concurrency int
	// Timeout of one attempt replaces the one of the kind's policy; 0 means it does not.
	Timeout time.Duration
	// Definition of what works the kind, for those who ask; see ledger.Kind.
	Definition string
}

// Event is one ended attempt.
type Event struct {
	Lease  *ledger.Lease
	Result ledger.Result // as it was reported to the ledger
	// Recorded is the outcome as the ledger wrote it down, State and Round where the item stands by it.
	// They are empty if the ledger did not take the result. Of OutcomeRecorded the state is not known.
	Recorded ledger.Outcome
	State    ledger.State
	Round    ledger.RoundState
	Err      error         // why the ledger did not take it: ledger.ErrLeaseLost, or what kept it from being recorded
	Waited   time.Duration // due → start
	Worked   time.Duration // start → end; 0 if it was handed back unstarted
}

// Accepted says whether the ledger took the result.
func (e Event) Accepted() bool { return e.Recorded != "" }

const (
	minLease     = 5 * time.Second
	defaultLease = time.Minute
	defaultGrace = 30 * time.Second
	maxPoll      = time.Second
)

// Worker is made by New and run once.
type Worker struct {
	config   Config
	log      *slog.Logger
	lanes    []*lane
	finisher *finisher
	quota    quota
	outage   outage
	lost     unrecorded
	clock    clock
	tally    tally
	minutes  minutes

	used  atomic.Bool
	life  context.Context // of calls to the ledger; ends last
	base  context.Context // of handlers: the caller's values, no end of its own
	look  chan struct{}   // a lane has become idle
	due   chan struct{}   // something waits that had not
	hurry chan struct{}   // closed by StopNow
	once  sync.Once       // for hurry
	broke chan error      // why the worker cannot go on; holds one
}

// New checks the config. What is wrong with it is a *ledger.InvalidError.
func New(c Config) (*Worker, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	c.Agent = cmp.Or(c.Agent, agentName())
	c.Concurrency = cmp.Or(c.Concurrency, runtime.GOMAXPROCS(0))
	c.Lease = cmp.Or(c.Lease, defaultLease)
	c.Grace = cmp.Or(c.Grace, defaultGrace)
	c.Poll = cmp.Or(c.Poll, maxPoll)
	w := &Worker{config: c, log: c.Logger, look: make(chan struct{}, 1), due: make(chan struct{}, 1), hurry: make(chan struct{}), broke: make(chan error, 1)}
	if w.log == nil {
		w.log = slog.Default()
	}
	w.outage.log = w.log
	w.quota.most = c.MaxItems
	w.finisher = newFinisher(w)
	for _, kind := range slices.Sorted(maps.Keys(c.Handlers)) {
		k := c.Kinds[kind]
		k.Concurrency = cmp.Or(k.Concurrency, c.Concurrency)
		w.lanes = append(w.lanes, newLane(w, kind, c.Handlers[kind], k))
	}
	return w, nil
}

func (c *Config) check() error {
	bad := func(field, format string, args ...any) error {
		return &ledger.InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
	}
	if c.Ledger == nil {
		return bad("ledger", "is missing")
	}
	for kind, h := range c.Handlers {
		if err := ledger.CheckItem(ledger.NewItem{Kind: kind, Key: "-"}); err != nil {
			return err
		}
		if h == nil {
			return bad("handlers", "the one of kind %q is nil", kind)
		}
	}
	for kind, k := range c.Kinds {
		switch {
		case c.Handlers[kind] == nil:
			return bad("kinds", "%q has no handler", kind)
		case k.Concurrency < 0:
			return bad("concurrency", "%d of kind %q, must not be negative", k.Concurrency, kind)
		case k.Timeout < 0:
			return bad("timeout", "%s of kind %q, must not be negative", k.Timeout, kind)
		}
	}
	switch s := c.Shard; {
	case c.Concurrency < 0:
		return bad("concurrency", "%d, must not be negative", c.Concurrency)
	case c.Lease != 0 && (c.Lease < minLease || c.Lease > ledger.MaxTTL):
		return bad("lease", "%s, must be %s … %s", c.Lease, minLease, ledger.MaxTTL)
	case c.Grace < 0:
		return bad("grace", "%s, must not be negative", c.Grace)
	case c.Poll < 0 || c.Poll > maxPoll:
		return bad("poll", "%s, must be 0 … %s", c.Poll, maxPoll)
	case c.GiveUp < 0:
		return bad("give_up", "%s, must not be negative", c.GiveUp)
	case c.MaxItems < 0:
		return bad("max_items", "%d, must not be negative", c.MaxItems)
	case s != (ledger.Shard{}) && (s.Count < 1 || s.Count > ledger.Slots || s.Index < 0 || s.Index >= s.Count):
		return bad("shard", "%d/%d, must be 0 ≤ index < count ≤ %d", s.Index, s.Count, ledger.Slots)
	}
	return nil
}

// agentName is a name that no other process has.
func agentName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return fmt.Sprintf("%.200s/%d/%06x", host, os.Getpid(), rand.IntN(1<<24))
}

// record takes note of how the report of a task's end went, and lets the task go.
func (w *Worker) record(t *task, e ledger.Ending, err error) {
	ev := Event{Lease: t.lease, Result: e.Result, Err: err}
	if !t.began.IsZero() {
		ev.Waited = max(0, t.lease.StartedAt.Sub(t.lease.Due)+t.began.Sub(t.claimed))
		ev.Worked = t.over.Sub(t.began)
	}
	switch {
	case err == nil:
		ev.Recorded, ev.State, ev.Round = e.Recorded, e.State, e.Round
		w.tally.add(e)
		w.minutes.add(w.clock.now(), t.lease.Kind, e.Recorded, ev.Worked)
		if e.State == ledger.StateWaiting {
			signal(w.due)
		}
	case errors.Is(err, ledger.ErrLeaseLost):
		t.log().Warn("the lease had been lost: the result is not recorded", "outcome", e.Result.Outcome)
	default:
		t.log().Debug("the result could not be recorded", "outcome", e.Result.Outcome, "error", err)
		w.lost.add(err)
	}
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
	}
}

// done says whether the quota is used up and all is recorded.
func (w *Worker) done() bool { return w.quota.spent() && w.holds() == 0 }

// holds is how many items are in this worker's hands.
func (w *Worker) holds() (n int) {
	for _, l := range w.lanes {
		l.mu.Lock()
		n += len(l.tasks)
		l.mu.Unlock()
	}
	return n
}

// idle says whether there is nothing in this worker's hands, and as far as it knows nothing to
// be claimed.
func (w *Worker) idle() bool {
	return !slices.ContainsFunc(w.lanes, func(l *lane) bool { return !l.idle() })
}

// failed takes note of whether a call to the ledger went through, and stops the worker if no
// later one will.
func (w *Worker) failed(call string, err error) bool {
	if w.life.Err() != nil || errors.Is(err, context.Canceled) { // it was called off
		return err != nil
	}
	if !fatal(err) { // waiting helps
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

// fatal errors do not go away by themselves.
func fatal(err error) bool {
	return errors.Is(err, ledger.ErrInvalid) || errors.Is(err, ledger.ErrSchema) || errors.Is(err, ledger.ErrNoLedger) || errors.Is(err, ledger.ErrDenied)
}
