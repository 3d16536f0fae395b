package lending_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/internal/lending"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig leases the items of an empty ledger.
type rig struct {
	*lending.Lender
	t     *testing.T
	l     *ledger.Ledger
	clock *ledgertest.Clock
	store *spy
	// forgets makes each claim be followed by a restart of the server: it reads all leases.
	forgets bool
}

// anyone may work all kinds as any agent.
var anyone = lending.Caller{Name: "anyone", May: func(string, string) bool { return true }, Reads: true}

func newRig(t *testing.T, open func(*testing.T, func() time.Time) ledger.Store) *rig {
	t.Helper()
	c := ledgertest.NewClock(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	s := &spy{Store: open(t, c.Now)}
	l := ledger.New(s, ledger.Options{Logger: slog.New(slog.DiscardHandler)})
	return &rig{Lender: lending.New(l, slog.New(slog.DiscardHandler)), t: t, l: l, clock: c, store: s}
}

func inMemory(_ *testing.T, now func() time.Time) ledger.Store {
	return memory.New(memory.Options{Now: now})
}

// onEach runs a test on each store, and once more with a server that restarts after each claim.
func onEach(t *testing.T, test func(t *testing.T, r *rig)) {
	for name, open := range map[string]func(*testing.T, func() time.Time) ledger.Store{
		"memory":    inMemory,
		"restarted": inMemory,
		"sqlite": func(t *testing.T, now func() time.Time) ledger.Store {
			s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "ledger.db"), sqlite.Options{Now: now})
			must.OK(t, err)
			t.Cleanup(func() { s.Close() })
			return s
		},
		"postgres": func(t *testing.T, now func() time.Time) ledger.Store {
			s, err := postgres.Open(t.Context(), pgtest.Pool(t), postgres.Options{Schema: pgtest.Schema(t), Now: now})
			must.OK(t, err)
			t.Cleanup(func() { s.Close() })
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, open)
			r.forgets = name == "restarted"
			test(t, r)
			for v, err := range r.l.Verify(t.Context()) {
				must.OK(t, err)
				t.Errorf("verify: %s, item %d: %s", v.Rule, v.ItemID, v.Text)
			}
		})
	}
}

// spy is a store that counts calls and cuts one of them off, before or after it takes effect.
type spy struct {
	ledger.Store

	mu     sync.Mutex
	calls  map[string]int
	writes int
	cut    int  // number of the call that is cut off, from 1; 0: none
	late   bool // the cut call takes effect
	during func(call string)

	watching atomic.Int32 // subscriptions
	slow     atomic.Int64 // how long Now takes, in nanoseconds
	reads    atomic.Int32 // calls of Leased
}

func (s *spy) Leased(ctx context.Context, ids []int64) ([]ledger.Record, error) {
	s.reads.Add(1)
	return s.Store.Leased(ctx, ids)
}

func (s *spy) Now(ctx context.Context) (time.Time, error) {
	<-time.After(time.Duration(s.slow.Load()))
	return s.Store.Now(ctx)
}

func (s *spy) Watch(ctx context.Context, wake func(string)) {
	s.watching.Add(1)
	defer s.watching.Add(-1)
	s.Store.Watch(ctx, wake)
}

var errCut = fmt.Errorf("cut off: %w", ledger.ErrUnavailable)

func (s *spy) call(name string, do func() error) error {
	s.mu.Lock()
	if s.calls == nil {
		s.calls = map[string]int{}
	}
	s.calls[name]++
	s.writes++
	cut, late, during := s.writes == s.cut, s.late, s.during
	s.mu.Unlock()
	if cut && !late {
		return errCut
	}
	err := do()
	if during != nil {
		during(name)
	}
	if err == nil && cut {
		return errCut
	}
	return err
}

// count returns how often a call was made.
func (s *spy) count(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[name]
}

func (s *spy) Claim(ctx context.Context, g ledger.Grant) (got ledger.Claimed, err error) {
	err = s.call("claim", func() (err error) { got, err = s.Store.Claim(ctx, g); return err })
	return got, err
}

func (s *spy) Start(ctx context.Context, ttl time.Duration, leases []ledger.LeaseRef) (ids []int64, err error) {
	err = s.call("start", func() (err error) { ids, err = s.Store.Start(ctx, ttl, leases); return err })
	return ids, err
}

func (s *spy) Renew(ctx context.Context, ttl time.Duration, leases []ledger.LeaseRef) (all []ledger.Renewal,
	err error) {
	err = s.call("renew", func() (err error) { all, err = s.Store.Renew(ctx, ttl, leases); return err })
	return all, err
}

func (s *spy) Complete(ctx context.Context, conn ledger.Conn, c []ledger.Completion) (ids []int64, err error) {
	err = s.call("complete", func() (err error) { ids, err = s.Store.Complete(ctx, conn, c); return err })
	return ids, err
}

func (s *spy) Update(ctx context.Context, conn ledger.Conn, fn func(ledger.Tx) error) error {
	return s.call("update", func() error { return s.Store.Update(ctx, conn, fn) })
}

func (r *rig) ok(err error) {
	r.t.Helper()
	must.OK(r.t, err)
}

// is fails unless err matches want.
func (r *rig) is(err, want error) {
	r.t.Helper()
	if !errors.Is(err, want) {
		r.t.Fatalf("got error %v, want %v", err, want)
	}
}

// add adds items of a kind with these keys and returns their ids.
func (r *rig) add(kind string, keys ...string) []int64 {
	r.t.Helper()
	items := make([]ledger.NewItem, len(keys))
	for i, key := range keys {
		items[i] = ledger.NewItem{Kind: kind, Key: key, Payload: []byte(`{"of":"` + key + `"}`)}
	}
	added, err := r.l.Add(r.t.Context(), items...)
	r.ok(err)
	ids := make([]int64, len(added))
	for i, a := range added {
		ids[i] = a.ID
	}
	return ids
}

// claim claims as an agent and expects n leases.
func (r *rig) claim(agent string, n int, edit ...func(*lending.Claim)) []lending.Lent {
	r.t.Helper()
	c := lending.Claim{Kind: "k", Agent: agent, Limit: max(n, 1)}
	for _, e := range edit {
		e(&c)
	}
	got, err := r.Claim(r.t.Context(), anyone, c)
	r.ok(err)
	if len(got.Leases) != n {
		r.t.Fatalf("claimed %d, want %d: %+v", len(got.Leases), n, got.Leases)
	}
	if r.forgets {
		r.Lender = lending.New(r.l, slog.New(slog.DiscardHandler))
	}
	return got.Leases
}

func resume(c *lending.Claim) { c.Resume = true }

// finish ends leases as done.
func (r *rig) finish(tokens ...string) []lending.LeaseAnswer {
	r.t.Helper()
	endings := make([]lending.Ending, len(tokens))
	for i, token := range tokens {
		endings[i].Token = token
	}
	got, err := r.Finish(r.t.Context(), anyone, endings)
	r.ok(err)
	return got.Answers
}

// pass advances the clock, then expires and promotes as workers do.
func (r *rig) pass(d time.Duration) {
	r.t.Helper()
	r.clock.Advance(d)
	_, err := r.l.Expire(r.t.Context(), 1000)
	r.ok(err)
	_, err = r.l.Promote(r.t.Context(), 1000)
	r.ok(err)
}

func (r *rig) item(id int64) ledger.Item {
	r.t.Helper()
	it, err := r.l.Get(r.t.Context(), id)
	r.ok(err)
	return it
}

func (r *rig) state(id int64, want ledger.State) {
	r.t.Helper()
	if got := r.item(id).State; got != want {
		r.t.Fatalf("item %d is %s, want %s", id, got, want)
	}
}

// outcomes returns the outcomes of an item's attempts, oldest first.
func (r *rig) outcomes(id int64) string {
	r.t.Helper()
	attempts, err := r.l.Attempts(r.t.Context(), id)
	r.ok(err)
	var all []string
	for _, a := range attempts {
		all = append(all, string(a.Outcome))
	}
	return strings.Join(all, " ")
}

func tokens(leases []lending.Lent) []string {
	all := make([]string, len(leases))
	for i, ls := range leases {
		all[i] = ls.Token
	}
	return all
}
