package source

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/intake"
	"github.com/ledgerd/ledgerd/internal/query"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/locks"
	"github.com/ledgerd/ledgerd/ledger/tracing"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

// Config of a source. All fields except Payload, Given, Fields, Parse, Validate, Query and Observe
// are required.
type Config struct {
	Ledger *ledger.Ledger
	Spec   *config.Source // as the config has it
	// Template has the fields that all items of the source share: Kind, Scope, Priority, Every, Zone.
	Template ledger.NewItem
	Input    ledger.Input // of the kind
	// Payload, Given, Fields, Parse and Validate as in intake.Source.
	Payload  json.RawMessage
	Given    []string
	Fields   map[string]string
	Parse    func(object []byte, assignments []string) (json.RawMessage, error)
	Validate func(payload []byte) error
	// Rules identify Parse and Validate: if they change, the source is started again.
	Rules string
	// Query opens the query for one look.
	Query func(context.Context) (*query.Query, error)

	Host  string        // of this machine, as agents on it give it
	Agent string        // the holder of the lock
	TTL   time.Duration // of the lock
	Log   *slog.Logger
	// Observe is called after every look.
	Observe func(Look)
	// TracerProvider gets a span of each look; nil means none.
	TracerProvider trace.TracerProvider

	fetchTime time.Duration    // bounds the download of a list; 0: fetchTime
	maxList   int64            // bounds the bytes of a downloaded list; 0: maxList
	now       func() time.Time // the wall clock; nil: the machine's
}

// Look is the result of one look at a source.
type Look struct {
	Source    string
	Took      time.Duration
	Found     int64                    // inputs that are items
	Verdicts  map[ledger.Verdict]int64 // the ledger's answers
	Cancelled int64                    // known items that are cancelled, and stay so
	Young     int                      // files that are still being written, and lists that end within a line
	Bad       int64                    // lines and rows that make no item
	Left      int64                    // files that are left out because something is wrong with them
	Finished  int64                    // files that were moved or deleted
	Err       error                    // why it is not complete

	named []any // bad lines and left files that the log has named, at this look or the one before
}

// Status is the state of a source.
type Status struct {
	Name    string    `json:"name"`
	Type    string    `json:"type"`
	Looking bool      `json:"looking"`         // this process looks at it
	Holder  string    `json:"holder"`          // the other agent that has the lock
	Looked  time.Time `json:"looked,omitzero"` // end of the last look; zero: none yet
	Next    time.Time `json:"next,omitzero"`   // in the past while it is being looked at
	Error   string    `json:"error"`
	// Good is the end of the last look without an error; Young and Wrong are Young and Left of the last look.
	Good         time.Time `json:"-"`
	Young, Wrong int64     `json:"-"`
}

// Source is a folder, list or query of the config. Run looks at it.
type Source struct {
	config   Config
	spec     *config.Source
	log      *slog.Logger
	locks    *locks.Manager
	settling *settling
	named    []any  // Look.named of the look before
	hints    *hints // nil unless this process looks at a folder
	tracer   *tracing.Tracer

	cancelled int64 // known items that the look before found cancelled
	fresh     bool  // no look has been complete since this process began to look

	mu     sync.Mutex
	status Status
}

// New makes a source. It looks at nothing before Run.
func New(c Config) *Source {
	log := c.Log.With("source", c.Spec.Name)
	c.fetchTime, c.maxList = cmp.Or(c.fetchTime, fetchTime), cmp.Or(c.maxList, maxList)
	if c.now == nil {
		c.now = time.Now
	}
	settle := c.Spec.Settle
	if c.Spec.Type == "list" {
		settle = lineSettle
	}
	return &Source{config: c, spec: c.Spec, log: log, locks: locks.New(c.Ledger), settling: newSettling(settle),
		tracer: tracing.NewTracer(c.TracerProvider),
		status: Status{Name: c.Spec.Name, Type: c.Spec.Type}}
}

// Status returns its state.
func (s *Source) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

func (s *Source) set(change func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.status)
}

// LockName is the name of the lock of the daemon that looks at a source.
func LockName(source string) string { return "source/" + source }

// The pause before the next attempt to get the lock: a fifth of its TTL, at most askLock.
const (
	retryLock = 5
	askLock   = 10 * time.Second
)

// Run looks at the source until ctx ends.
func (s *Source) Run(ctx context.Context) {
	if s.spec.Local {
		s.hold(ctx)
		return
	}
	for ctx.Err() == nil {
		held, lock, err := s.locks.Acquire(ctx, LockName(s.spec.Name), locks.Options{Holder: s.config.Agent,
			TTL: s.config.TTL})
		if err != nil {
			s.waiting(ctx, err)
			pause := min(s.config.TTL/retryLock, askLock)
			_ = intake.Sleep(ctx, pause/2+rand.N(pause))
			continue
		}
		s.hold(held)
		if ctx.Err() == nil {
			s.log.Warn("the lock of the source is lost: another daemon may look at it", "lock", LockName(s.spec.Name))
		}
		s.set(func(st *Status) { st.Looking, st.Next = false, time.Time{} })
		release, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
		if err := s.locks.Release(release, lock); err != nil {
			s.log.Debug("the lock ends with its time", "error", err)
		}
		cancel()
	}
}

// releaseTime bounds how long the end of a source waits for the ledger.
const releaseTime = 2 * time.Second

// waiting records why this process has not got the lock.
func (s *Source) waiting(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	holder, problem := "", ""
	if held, ok := errors.AsType[*locks.HeldError](err); ok {
		holder = held.Holder
	} else {
		problem = err.Error()
	}
	before := s.Status()
	s.set(func(st *Status) { st.Looking, st.Holder, st.Error = false, holder, problem })
	switch {
	case problem != "" && before.Error == "":
		s.log.Warn("the lock of the source cannot be had; trying on", "error", err)
	case holder == s.config.Agent && before.Holder != holder: // its fence is not known any more
		s.log.Info("the lock of the source, which was lost, has to run out first", "lock", LockName(s.spec.Name))
	case problem == "" && before.Holder != holder:
		s.log.Info("another daemon looks at the source", "holder", holder)
	}
}

const (
	// thrift is the least pause before a hinted look, in multiples of the duration of the look before.
	thrift = 20
	// After a failed look the next one comes after firstRetry at the latest; each further failure doubles the pause, up
	// to lastRetry.
	firstRetry, lastRetry = 5 * time.Second, 5 * time.Minute
	// wake is how often the wall clock is read: it may have been set, or the machine may have slept.
	wake = time.Minute
)

// hold looks again and again until ctx ends.
func (s *Source) hold(ctx context.Context) {
	s.set(func(st *Status) { st.Looking, st.Holder, st.Young, st.Wrong, st.Next = true, "", 0, 0, time.Now() })
	if s.spec.Type == "folder" {
		s.hints = watch(s.spec.Path, s.spec.Recursive, s.log)
		defer s.hints.close()
	}
	s.fresh = true
	retry := firstRetry
	for ctx.Err() == nil {
		if s.hints != nil {
			s.hints.begin()
		}
		l := s.look(ctx)
		if ctx.Err() != nil {
			return
		}
		s.named = l.named
		now := s.config.now()
		next := s.spec.Next(now)
		if l.Err == nil {
			retry, s.fresh = firstRetry, false
		} else {
			next = earlier(next, now.Add(retry))
			retry = min(2*retry, lastRetry)
		}
		soon := now.Add(max(s.settling.settle, thrift*l.Took))
		if l.Young > 0 {
			next = earlier(next, soon)
		}
		s.note(l, now, next)
		s.until(ctx, next, soon)
	}
}

// until waits for the time of the next look. A hint makes that time earlier: not before soon, and not before the settle
// time has passed. If the wall clock was set back, the schedule counts from the new time.
func (s *Source) until(ctx context.Context, next, soon time.Time) {
	var hinted <-chan struct{}
	if s.hints != nil {
		hinted = s.hints.c
	}
	for begun := s.config.now(); ; {
		now := s.config.now()
		if now.Round(0).Before(begun.Round(0)) {
			begun = now
			if again := s.spec.Next(now); again.Sub(now) < next.Sub(now) { // next may count by the monotonic clock
				next = again
				s.set(func(st *Status) { st.Next = next })
			}
		}
		left := next.Sub(now)
		if left <= 0 {
			return
		}
		timer := time.NewTimer(min(left, wake))
		select {
		case <-timer.C:
		case <-hinted:
			next = earlier(next, later(soon, s.config.now().Add(s.spec.Settle)))
			s.set(func(st *Status) { st.Next = next })
			hinted = nil // further hints change nothing: the next look sees all changes
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// note records the result of a look.
func (s *Source) note(l Look, now, next time.Time) {
	problem := ""
	if l.Err != nil {
		problem = redact.Text(l.Err.Error())
	}
	before := s.Status()
	s.set(func(st *Status) {
		st.Looked, st.Next, st.Error, st.Young, st.Wrong = now, next, problem, int64(l.Young), l.Left
		if l.Err == nil {
			st.Good = now
		}
	})
	args := []any{"found", l.Found, "added", l.Verdicts[ledger.VerdictAdded], "changed", l.Verdicts[ledger.VerdictChanged],
		"cancelled", l.Cancelled, "finished", l.Finished, "young", l.Young, "bad", l.Bad, "left", l.Left,
		"ms", l.Took.Milliseconds()}
	moreCancelled := l.Cancelled > s.cancelled
	s.cancelled = l.Cancelled
	switch {
	case l.Err != nil:
		s.log.Error("the look at the source is not complete; trying on", append(args, "error", problem, "next", next)...)
	case before.Error != "" && before.Looking:
		s.log.Info("the source is well again", args...)
	case moreCancelled, l.Verdicts[ledger.VerdictAdded]+l.Verdicts[ledger.VerdictChanged]+l.Finished > 0:
		s.log.Info("looked at the source", args...)
	default:
		s.log.Debug("looked at the source", args...)
	}
	if s.config.Observe != nil {
		s.config.Observe(l)
	}
}

// look looks once.
func (s *Source) look(ctx context.Context) (l Look) {
	l = Look{Source: s.spec.Name, Verdicts: map[ledger.Verdict]int64{}}
	began := time.Now()
	ctx, traced := s.tracer.Look(ctx, s.spec.Name)
	defer func() {
		l.Took = time.Since(began)
		traced(l.Err)
	}()
	c := s.config
	src := &intake.Source{Template: c.Template, Input: c.Input, Payload: c.Payload, Given: c.Given, Fields: c.Fields,
		Parse: c.Parse, Validate: c.Validate}
	switch s.spec.Type {
	case "folder":
		l.Err = s.folder(ctx, src, &l)
	case "list":
		l.Err = s.list(ctx, src, &l)
	case "query":
		l.Err = s.query(ctx, src, &l)
	default:
		l.Err = fmt.Errorf("there is no source of type %q", s.spec.Type)
	}
	return l
}

func earlier(times ...time.Time) time.Time { return slices.MinFunc(times, time.Time.Compare) }

func later(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }
