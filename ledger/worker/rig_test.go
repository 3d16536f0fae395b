package worker

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// rig is a ledger in memory with a store that records calls and can fail.
type rig struct {
	*ledger.Ledger
	t     *testing.T
	store *spy
	log   *logBuffer
}

func newRig(t *testing.T) *rig {
	t.Helper()
	s := &spy{Store: memory.New(memory.Options{})}
	return &rig{Ledger: ledger.New(s, ledger.Options{Jitter: func() float64 { return 1 }}), t: t, store: s,
		log: &logBuffer{}}
}

// spy is a store that fails on request and records claims.
type spy struct {
	ledger.Store

	mu     sync.Mutex
	fail   func(call string) error // nil: nothing fails
	claims []ledger.Grant
	calls  map[string]int
}

// limits returns the limits of all claims.
func (s *spy) limits() (all []int) {
	for _, g := range s.claims {
		all = append(all, g.Limit)
	}
	return all
}

// grants returns the claims since its last call.
func (s *spy) grants() (all []ledger.Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, s.claims = s.claims, nil
	return all
}

func (s *spy) failing(f func(call string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = f
}

// away makes every call fail until back.
func (s *spy) away() { s.failing(func(string) error { return ledger.ErrUnavailable }) }
func (s *spy) back() { s.failing(nil) }

func (s *spy) called(call string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == nil {
		s.calls = map[string]int{}
	}
	s.calls[call]++
	if s.fail == nil {
		return nil
	}
	return s.fail(call)
}

func (s *spy) Claim(ctx context.Context, g ledger.Grant) (ledger.Claimed, error) {
	if err := s.called("claim"); err != nil {
		return ledger.Claimed{}, err
	}
	s.mu.Lock()
	s.claims = append(s.claims, g)
	s.mu.Unlock()
	return s.Store.Claim(ctx, g)
}

func (s *spy) AddTallies(ctx context.Context, tallies []stats.Minute) error {
	if err := s.called("tally"); err != nil {
		return err
	}
	return s.Store.AddTallies(ctx, tallies)
}

func (s *spy) Complete(ctx context.Context, conn ledger.Conn, c []ledger.Completion) ([]int64, error) {
	if err := s.called("complete"); err != nil {
		return nil, err
	}
	return s.Store.Complete(ctx, conn, c)
}

func (s *spy) CompleteAndClaim(ctx context.Context, c []ledger.Completion, g ledger.Grant) ([]int64, ledger.Claimed,
	error) {
	for _, call := range []string{"exchange", "complete", "claim"} {
		if err := s.called(call); err != nil {
			return nil, ledger.Claimed{}, err
		}
	}
	s.mu.Lock()
	s.claims = append(s.claims, g)
	s.mu.Unlock()
	return s.Store.CompleteAndClaim(ctx, c, g)
}

func (s *spy) Update(ctx context.Context, conn ledger.Conn, fn func(ledger.Tx) error) error {
	if err := s.called("update"); err != nil {
		return err
	}
	return s.Store.Update(ctx, conn, fn)
}

func (s *spy) Renew(ctx context.Context, ttl time.Duration, leases []ledger.LeaseRef) ([]ledger.Renewal, error) {
	if err := s.called("renew"); err != nil {
		return nil, err
	}
	return s.Store.Renew(ctx, ttl, leases)
}

func (s *spy) Start(ctx context.Context, ttl time.Duration, leases []ledger.LeaseRef) ([]int64, error) {
	if err := s.called("start"); err != nil {
		return nil, err
	}
	return s.Store.Start(ctx, ttl, leases)
}

func (s *spy) Promote(ctx context.Context, limit int) ([]string, time.Time, error) {
	if err := s.called("promote"); err != nil {
		return nil, time.Time{}, err
	}
	return s.Store.Promote(ctx, limit)
}

func (s *spy) Holders(ctx context.Context, ids []int64) ([]ledger.Renewal, error) {
	if err := s.called("holders"); err != nil {
		return nil, err
	}
	return s.Store.Holders(ctx, ids)
}

func (s *spy) Standing(ctx context.Context, kind string, part scheduler.Shard) (stats.Standing, error) {
	if err := s.called("standing"); err != nil {
		return stats.Standing{}, err
	}
	return s.Store.Standing(ctx, kind, part)
}

func (s *spy) Beat(ctx context.Context, a ledger.Agent, ttl time.Duration) error {
	if err := s.called("beat"); err != nil {
		return err
	}
	return s.Store.Beat(ctx, a, ttl)
}

func (s *spy) Kinds(ctx context.Context, names ...string) ([]ledger.Kind, error) {
	if err := s.called("kinds"); err != nil {
		return nil, err
	}
	return s.Store.Kinds(ctx, names...)
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.b.Bytes(), []byte(text))
}

// add adds items of kind "k" and returns their ids.
func (r *rig) add(items ...ledger.NewItem) []int64 {
	r.t.Helper()
	for i := range items {
		if items[i].Kind == "" {
			items[i].Kind = "k"
		}
	}
	added, err := r.Add(context.Background(), items...)
	must.OK(r.t, err)
	ids := make([]int64, len(added))
	for i, a := range added {
		ids[i] = a.ID
	}
	return ids
}

// addMany adds n items of kind "k" that differ only in the key.
func (r *rig) addMany(n int) []int64 {
	items := make([]ledger.NewItem, n)
	for i := range items {
		items[i].Key = fmt.Sprintf("%06d", i)
	}
	return r.add(items...)
}

func (r *rig) policy(k ledger.Kind) {
	r.t.Helper()
	k.Name = "k"
	must.OK(r.t, r.SetKind(context.Background(), "test", k))
}

func (r *rig) item(id int64) ledger.Item {
	r.t.Helper()
	it, err := r.Get(context.Background(), id)
	must.OK(r.t, err)
	return it
}

// outcomes returns the outcomes of the ended attempts of an item.
func (r *rig) outcomes(id int64) (all []ledger.Outcome) {
	r.t.Helper()
	for _, a := range r.attempts(id) {
		all = append(all, a.Outcome)
	}
	return all
}

func (r *rig) attempts(id int64) []ledger.Attempt {
	r.t.Helper()
	attempts, err := r.Attempts(context.Background(), id)
	must.OK(r.t, err)
	return attempts
}

// worker makes a worker of kind "k".
func (r *rig) worker(h Handler, edit ...func(*Config)) *Worker {
	r.t.Helper()
	c := Config{Ledger: r.Ledger, Handlers: map[string]Handler{"k": h}, Concurrency: 2,
		Logger: slog.New(slog.NewTextHandler(r.log, nil))}
	for _, e := range edit {
		e(&c)
	}
	w, err := New(c)
	must.OK(r.t, err)
	return w
}

// drain drains kind "k" with a new worker.
func (r *rig) drain(h Handler, edit ...func(*Config)) Report {
	r.t.Helper()
	rep, err := r.worker(h, edit...).Drain(context.Background(), time.Minute)
	must.OK(r.t, err)
	return rep
}

// run runs a worker; stop ends it and waits for it.
func (r *rig) run(w *Worker) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return func() {
		r.t.Helper()
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("Run: %v", err)
		}
	}
}

// events collects what a worker observes.
type events struct {
	mu  sync.Mutex
	all []Event
}

func (e *events) config(c *Config) {
	c.Observe = func(ev Event) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.all = append(e.all, ev)
	}
}

func (e *events) list() []Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]Event(nil), e.all...)
}

// done is a handler that does nothing.
func done(context.Context, *ledger.Lease) ledger.Result { return ledger.Done(nil) }

// takes returns a handler that takes a time and succeeds.
func takes(d time.Duration) Func {
	return func(context.Context, *ledger.Lease) ledger.Result {
		elapse(d)
		return ledger.Done(nil)
	}
}

// toEnd is a handler that works until its context ends and then fails with why.
func toEnd(ctx context.Context, _ *ledger.Lease) ledger.Result {
	<-ctx.Done()
	return ledger.Fail(context.Cause(ctx))
}

// elapse sleeps in a bubble of synctest, where time is free. Outside of a bubble the year is not 2000, and it panics:
// tests must not sleep.
func elapse(d time.Duration) {
	if time.Now().Year() > 2001 {
		panic("elapse outside of a synctest bubble")
	}
	time.Sleep(d)
}

// same fails the test if got differs from want.
func same(t testing.TB, what string, want, got any, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
