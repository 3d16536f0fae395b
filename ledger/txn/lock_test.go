package txn_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/ledger/txn"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// listening is a DB that notes the keys of each call of LockKeys.
type listening struct {
	txn.DB[*sql.Tx]
	sent [][]string
}

func (l *listening) LockKeys(ctx context.Context, tx *sql.Tx, keys []string) error {
	l.sent = append(l.sent, keys)
	return l.DB.LockKeys(ctx, tx, keys)
}

// A key is sent once per transaction, however often it is asked for, and all keys of a call together. A repeated try
// begins with all keys that the try before it had locked.
func TestLockOnce(t *testing.T) {
	for kind, driver := range map[string]string{"sqlite": "sqlite", "postgres": "pgx"} {
		t.Run(kind, func(t *testing.T) {
			p := newPlace(t, kind)
			p.exec(t, notesTable)
			db, err := sql.Open(driver, p.url)
			must.OK(t, err)
			defer db.Close()
			l := &listening{DB: map[string]func(*sql.DB) txn.DB[*sql.Tx]{
				"sqlite": sqlite.DB, "postgres": postgres.SQLDB}[kind](db)}
			r := txn.New(l, txn.Config{})
			calls := 0
			err = r.Run(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
				err := errors.Join(txn.Lock(ctx), txn.Lock(ctx, "b", "a", "b"), txn.Lock(ctx, "a"))
				return errors.Join(err, r.Run(ctx, func(ctx context.Context, tx *sql.Tx) error {
					if err := txn.Lock(ctx, "c", "b"); err != nil {
						return err
					}
					if calls++; calls == 1 {
						return giveUp(ctx, p, r.Conn(tx))
					}
					return txn.Lock(ctx, "d")
				}))
			})
			must.OK(t, err)
			if diff := cmp.Diff([][]string{{"a", "b"}, {"c"}, {"a", "b", "c"}, {"d"}}, l.sent); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Lock fails outside of a transaction, and with a context that outlived its transaction.
func TestLockOutside(t *testing.T) {
	if err := txn.Lock(t.Context(), "a"); !errors.Is(err, txn.ErrNoTx) {
		t.Error(err)
	}
	onEach(t, func(t *testing.T, p *place) {
		p.exec(t, notesTable)
		run := p.with(txn.Config{})
		var kept context.Context
		must.OK(t, run(t.Context(), func(ctx context.Context, _ ledger.Conn) error {
			kept = context.WithoutCancel(ctx)
			return nil
		}))
		if err := txn.Lock(kept, "a"); !errors.Is(err, txn.ErrNoTx) {
			t.Error(err)
		}
		for db := range txn.Databases(kept) {
			t.Errorf("still in %T", db)
		}
		if err := run(kept, func(ctx context.Context, c ledger.Conn) error { return note(ctx, c, "own") }); err != nil ||
			notes(t, p) != "own" {
			t.Errorf("%v, %q", err, notes(t, p))
		}
	})
}

// Keys are compared byte by byte. On Postgres transactions with different keys do not meet, and
// none of them blocks reading or writing that asks for no lock.
func TestLockExcludesTheKeyAlone(t *testing.T) {
	keys := []string{"a", "A", " a", "a ", "", "\x00", "a\x00", "ä", "a\u0308", "\xff", "%", "'",
		strings.Repeat("x", 1<<20)}
	for _, kind := range []string{"postgres", "pgx"} {
		t.Run(kind, func(t *testing.T) {
			p := newPlace(t, kind)
			p.exec(t, notesTable, "INSERT INTO notes VALUES ('before')")
			soon := p.with(txn.Config{MaxTime: 100 * time.Millisecond})
			err := p.with(txn.Config{})(t.Context(), func(ctx context.Context, c ledger.Conn) error {
				if err := txn.Lock(ctx, keys[0], "taken"); err != nil {
					return err
				}
				if _, err := c.Exec(ctx, "UPDATE notes SET text = 'within'"); err != nil {
					return err
				}
				if got := notes(t, p); got != "before" {
					t.Errorf("others read %q", got)
				}
				for _, key := range keys[1:] {
					if err := p.with(txn.Config{})(t.Context(), func(ctx context.Context, _ ledger.Conn) error {
						return txn.Lock(ctx, key)
					}); err != nil {
						t.Errorf("%.10q meets %q: %v", key, keys[0], err)
					}
				}
				for _, key := range []string{keys[0], "taken"} {
					if err := soon(t.Context(), func(ctx context.Context, _ ledger.Conn) error {
						return txn.Lock(ctx, key)
					}); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%q is locked twice: %v", key, err)
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			// The documentation lets other programs take the same lock with this SQL.
			err = p.with(txn.Config{})(t.Context(), func(ctx context.Context, c ledger.Conn) error {
				if _, err := c.Exec(ctx, "SELECT pg_advisory_xact_lock(('x' || left(encode(sha256('account:7'), 'hex'), "+
					"16))::bit(64)::bigint)"); err != nil {
					return err
				}
				err := soon(t.Context(), func(ctx context.Context, _ ledger.Conn) error { return txn.Lock(ctx, "account:7") })
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a lock of SQL does not exclude: %v", err)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// Two functions lock the same two keys one by one, in opposite order and three calls deep, and wait
// for each other. On Postgres that is a deadlock: one of them is called again, as a whole.
func TestDeadlock(t *testing.T) {
	onEach(t, func(t *testing.T, p *place) {
		p.exec(t, notesTable)
		var mu sync.Mutex
		var deadlocks int
		run := p.with(txn.Config{OnTry: func(x txn.Try) {
			mu.Lock()
			defer mu.Unlock()
			if x.Err != nil {
				deadlocks++
			}
		}})
		met := make(chan struct{}, 2)
		var both sync.WaitGroup
		for _, keys := range [][]string{{"1", "2"}, {"2", "1"}} {
			both.Go(func() {
				calls := 0
				serviceC := func(ctx context.Context) error {
					return run(ctx, func(ctx context.Context, c ledger.Conn) error { return txn.Lock(ctx, keys[1]) })
				}
				serviceB := func(ctx context.Context) error {
					return run(ctx, func(ctx context.Context, c ledger.Conn) error {
						return errors.Join(note(ctx, c, "B"+keys[0]), serviceC(ctx))
					})
				}
				err := run(t.Context(), func(ctx context.Context, c ledger.Conn) error {
					calls++
					if err := errors.Join(note(ctx, c, "A"+keys[0]), txn.Lock(ctx, keys[0])); err != nil {
						return err
					}
					if p.postgres() && calls == 1 { // on SQLite the other one has not begun
						met <- struct{}{}
						for len(met) < 2 {
							select {
							case <-ctx.Done():
								return ctx.Err()
							case <-time.After(time.Millisecond):
							}
						}
					}
					return serviceB(ctx)
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if want := map[bool]int{true: 1}[p.postgres()]; deadlocks != want {
			t.Errorf("%d tries failed, want %d", deadlocks, want)
		}
		if got := notes(t, p); got != "A1 A2 B1 B2" {
			t.Errorf("committed: %q", got)
		}
	})
}

// A call that locks all keys succeeds while other calls lock one key each, again and again.
func TestLockOfMany(t *testing.T) {
	onEach(t, func(t *testing.T, p *place) {
		run := p.with(txn.Config{MaxTries: 1})
		keys := numbered(txn.MaxKeys)
		ctx, cancel := context.WithCancel(t.Context())
		var small atomic.Int64
		var all sync.WaitGroup
		for range 15 {
			all.Go(func() {
				for ctx.Err() == nil {
					key := keys[rand.IntN(20)]
					err := run(ctx, func(ctx context.Context, _ ledger.Conn) error { return txn.Lock(ctx, key) })
					if err == nil {
						small.Add(1)
					} else if ctx.Err() == nil {
						t.Error(err)
					}
				}
			})
		}
		for range 10 {
			if err := run(t.Context(), func(ctx context.Context, _ ledger.Conn) error {
				return txn.Lock(ctx, keys...)
			}); err != nil {
				t.Error(err)
			}
		}
		cancel()
		all.Wait()
		t.Logf("%d calls with one key meanwhile", small.Load())
	})
}

// Items are added and finished in the transaction. A call that would wait for the transaction itself is
// refused at once.
func TestLedgerInside(t *testing.T) {
	onEach(t, func(t *testing.T, p *place) {
		p.exec(t, notesTable)
		l := newLedger(t, p)
		must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "first"}))
		leases, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: 1})
		if err != nil || len(leases) != 1 {
			t.Fatal(leases, err)
		}
		run := p.with(txn.Config{MaxTime: 10 * time.Second})
		for _, outcome := range []error{errOops, nil} {
			err := run(t.Context(), func(ctx context.Context, c ledger.Conn) error {
				if _, err := l.AddTx(ctx, c, ledger.NewItem{Kind: "k", Key: "second"}); err != nil {
					return err
				}
				if err := l.FinishTx(ctx, c, ledger.Ending{Lease: leases[0], Result: ledger.Done(nil)}); err != nil {
					return err
				}
				if !p.postgres() {
					refused(t, ctx, l, leases[0])
				}
				return errors.Join(outcome, note(ctx, c, "mine"))
			})
			if !errors.Is(err, outcome) {
				t.Error(err)
			}
			for state, want := range map[ledger.State]int64{ledger.StateReady: 1, ledger.StateDone: 1} {
				if outcome != nil {
					want = 0
				}
				if n, err := l.Count(t.Context(), ledger.Filter{States: []ledger.State{state}}); n != want || err != nil {
					t.Errorf("%v after %v: %d, want %d; %v", state, outcome, n, want, err)
				}
			}
		}
		if got := notes(t, p); got != "mine" {
			t.Errorf("committed: %q", got)
		}
	})
}

// Statistics count what a handler ended in its own transaction, as it ended, and no try that was rolled back.
func TestStatsCountFinishTx(t *testing.T) {
	onEach(t, func(t *testing.T, p *place) {
		l := newLedger(t, p)
		results := map[string]ledger.Result{"done": ledger.Done(nil), "skipped": ledger.Skip("known"),
			"failed": ledger.Permanent(errOops)}
		for key := range results {
			must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: key}))
		}
		run := p.with(txn.Config{MaxTime: 10 * time.Second})
		tries := map[string]int{}
		handler := worker.Func(func(ctx context.Context, ls *ledger.Lease) ledger.Result {
			for range 2 {
				err := run(ctx, func(ctx context.Context, c ledger.Conn) error {
					if tries[ls.Key]++; tries[ls.Key] == 1 { // the first is rolled back
						return errors.Join(errOops, l.FinishTx(ctx, c, ledger.Ending{Lease: ls, Result: ledger.Doubt(errOops)}))
					}
					return l.FinishTx(ctx, c, ledger.Ending{Lease: ls, Result: results[ls.Key]})
				})
				if err == nil {
					return worker.Recorded()
				}
			}
			return ledger.Permanent(errors.New("no try went well"))
		})
		var events []ledger.Outcome
		w, err := worker.New(worker.Config{Ledger: l, Handlers: map[string]worker.Handler{"k": handler}, Concurrency: 1,
			Observe: func(e worker.Event) { events = append(events, e.Recorded) }})
		must.OK(t, err)
		report, err := w.Drain(t.Context(), 0)
		want := map[ledger.Outcome]int64{ledger.OutcomeDone: 1, ledger.OutcomeSkipped: 1, ledger.OutcomeFailed: 1}
		if d := cmp.Diff(want, report.Outcomes); d != "" || err != nil || report.Dead != 1 {
			t.Errorf("%d dead, %v, outcomes (-want +got):\n%s", report.Dead, err, d)
		}
		if len(events) != 3 || slices.Contains(events, worker.OutcomeRecorded) {
			t.Errorf("events %v", events)
		}
		s, err := l.Stats(t.Context())
		if err != nil || len(s.Kinds) != 1 {
			t.Fatal(s, err)
		}
		if k := s.Kinds[0]; k.Done != 2 || k.Failed != 1 || k.Works.Total() != 3 {
			t.Errorf("%d done, %d failed, %d worked; want 2, 1, 3", k.Done, k.Failed, k.Works.Total())
		}
	})
}

// refused expects that calls which write are refused with this ctx, and that those that read are not.
func refused(t *testing.T, ctx context.Context, l *ledger.Ledger, lease *ledger.Lease) {
	t.Helper()
	_, added := l.Add(ctx, ledger.NewItem{Kind: "k", Key: "third"})
	_, expired := l.Expire(ctx, 1)
	for name, err := range map[string]error{"Add": added, "Expire": expired,
		"Finish": l.Finish(ctx, ledger.Ending{Lease: lease, Result: ledger.Done(nil)})[0]} {
		if !errors.Is(err, ledger.ErrInvalid) || !strings.Contains(err.Error(), "inside a transaction on") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n, err := l.Count(ctx, ledger.Filter{}); n != 1 || err != nil {
		t.Errorf("Count: %d, %v", n, err)
	}
}

// newLedger is a ledger in a place.
func newLedger(t *testing.T, p *place) *ledger.Ledger {
	t.Helper()
	var store ledger.Store
	var err error
	if p.postgres() {
		schema := mustValue[string](t, p, "SELECT current_schema()")
		store, err = postgres.Connect(t.Context(), p.url, postgres.Options{Schema: schema})
	} else {
		path, _, _ := strings.Cut(strings.TrimPrefix(p.url, "file:"), "?")
		store, err = sqlite.Open(t.Context(), path, sqlite.Options{})
	}
	must.OK(t, err)
	t.Cleanup(func() { must.OK(t, store.Close()) })
	return ledger.New(store, ledger.Options{})
}

// On SQLite a transaction within one on the same file, on another handle, would wait for itself.
func TestTwoHandlesOnOneFile(t *testing.T) {
	p := newPlace(t, "sqlite")
	q := reopen(t, p.kind, p.url)
	err := p.with(txn.Config{})(t.Context(), func(ctx context.Context, _ ledger.Conn) error {
		return q.with(txn.Config{})(ctx, func(context.Context, ledger.Conn) error { return fmt.Errorf("it was called") })
	})
	if err == nil || !strings.Contains(err.Error(), "begun on another handle") {
		t.Error(err)
	}
}
