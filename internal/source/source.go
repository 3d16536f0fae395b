package source

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
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
	// Spec is what is configured.
	Spec *config.Source
	// Template is what its items have in common: Kind, Scope, Priority, Every, Zone.
	Template ledger.NewItem
	// Input is that of the kind.
	Input ledger.Input
	// Payload, Given, Fields, Parse and Validate as in intake.Source.
	Payload  json.RawMessage
	Given    []string
	Fields   map[string]string
	Parse    func(object []byte, assignments []string) (json.RawMessage, error)
	Validate func(payload []byte) error
	// Rules are those of Parse and Validate: a source with others is another one.
	Rules string
	// Query opens the query, for the look that it is called for.
	Query func(context.Context) (*query.Query, error)

	Host  string        // of this machine, as agents on it give it
	Agent string        // the holder of the lock
	TTL   time.Duration // of the lock
	Log   *slog.Logger
	// Observe is called after every look.
	Observe func(Look)
	// TracerProvider gets a span of each look; nil means none.
	TracerProvider trace.TracerProvider

	fetchTime time.Duration    // that a list of a URL may take to come
	maxList   int64            // bytes that it may have
	now       func() time.Time // the wall clock; nil means that of the machine
}

// Look is what came of one look at a source.
type Look struct {
	Source    string
	Took      time.Duration
	Found     int64                    // inputs that are items
	Verdicts  map[ledger.Verdict]int64 // the ledger's answers
	Cancelled int64                    // known items that are cancelled, and left so
	Young     int                      // files that are still being written, and lists that end within a line
	Bad       int64                    // lines and rows that make no item
	Left      int64                    // files that are left out because something is wrong with them
	Finished  int64                    // files that were moved or deleted
	Err       error                    // why it is not complete

	told []any // of Bad and Left, those that were named in the log, by this look or the one before
}

// Status of a source, for those who ask how it is.
type Status struct {
	Name    string    `json:"name"`
	Type    string    `json:"type"`
	Looking bool      `json:"looking"`         // this process looks at it
	Holder  string    `json:"holder"`          // another holder
	Looked  time.Time `json:"looked,omitzero"` // end of the last look; zero: none yet
	Next    time.Time `json:"next,omitzero"`   // in the past while it is being looked at
	Error   string    `json:"error"`
	// Good is the end of the last look without an error; Young and Wrong are Young and Left of the last look.
	Good         time.Time `json:"-"`
	Young, Wrong int64     `json:"-"`
}

// Source is looked at by Run.
type Source struct {
	config   Config
	spec     *config.Source
	log      *slog.Logger
	locks    *locks.Manager
	settling *settling
	told     []any  // by the look before
	hints    *hints // nil unless it is a folder that is being looked at
	tracer   *tracing.Tracer

	cancelled int64 // known items that the look before found cancelled
	fresh     bool  // no look has been complete since it is being looked at

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

// LockName is the name of the lock that the one has who looks at a source.
func LockName(source string) string { return "source/" + source }

// retryLock is a part of the TTL: how often the others ask for the lock; askLock is its bound.
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

// waiting notes why another daemon looks, or none can.
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
	case holder == s.config.Agent && before.Holder != holder: // it is not known any more what it was for
		s.log.Info("the lock of the source, which was lost, has to run out first", "lock", LockName(s.spec.Name))
	case problem == "" && before.Holder != holder:
		s.log.Info("another daemon looks at the source", "holder", holder)
	}
}

const (
	// thrift is how many times as long as a look the pause before the next one is that only a hint asks for.
	thrift = 20
	// After a look that failed the next one comes at the latest after firstRetry, doubled up to lastRetry.
	firstRetry, lastRetry = 5 * time.Second, 5 * time.Minute
	// wake is how often the wall clock is looked at: it may be set, or go on after a sleep.
	wake = time.Minute
)

// hold looks again and again while the source is ours.
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
		s.told = l.told
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

// until waits for the next look: for its time, or, when something hints at a change, for the time from
// which on such a look may come. Where the wall clock was set back, the schedule counts from there.
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
			hinted = nil // the look that comes sees all that is there
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
	more := l.Cancelled > s.cancelled // told once, not by every look
	s.cancelled = l.Cancelled
	switch {
	case l.Err != nil:
		s.log.Error("the look at the source is not complete; trying on", append(args, "error", problem, "next", next)...)
	case before.Error != "" && before.Looking:
		s.log.Info("the source is well again", args...)
	case more, l.Verdicts[ledger.VerdictAdded]+l.Verdicts[ledger.VerdictChanged]+l.Finished > 0:
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
	src := &intake.Source{Template: s.config.Template, Input: s.config.Input, Payload: s.config.Payload,
		Given: s.config.Given, Fields: s.config.Fields,
		Parse: s.config.Parse, Validate: s.config.Validate}
	switch s.spec.Type {
	case "folder":
		l.Err = s.folder(ctx, src, &l)
	case "list":
		l.Err = s.list(ctx, src, &l)
	case "query":
		l.Err = s.query(ctx, src, &l)
	default:
		l.Err = fmt.Errorf("type %q is none", s.spec.Type)
	}
	return l
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
