package ledgertest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/ledger/typed"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

type mail struct {
	To   string `json:"to"`
	Text string `json:"text,omitempty"`
}

var welcome = typed.Kind[mail]{Name: "welcome", Key: func(m mail) string { return m.To }}

// failing is a test that notes its failure.
type failing struct {
	testing.TB
	text string
}

func (f *failing) Helper() {}

func (f *failing) Logf(format string, args ...any) { f.text = fmt.Sprintf(format, args...) }

func (f *failing) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failure returns the text with which an assertion fails; "" if it holds.
func failure(t *testing.T, assert func(t testing.TB)) string {
	f := &failing{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert(f)
	}()
	<-done
	return f.text
}

// Added distinguishes items of the transaction from those that were committed before.
func TestAdded(t *testing.T) {
	file := ledgertest.File(t)
	pool := pgtest.Pool(t)
	store, err := postgres.Open(t.Context(), pool, postgres.Options{Schema: pgtest.Schema(t)})
	must.OK(t, err)
	pg := ledger.New(store, ledger.Options{})
	t.Cleanup(func() { pg.Close() })
	t.Run("sqlite", func(t *testing.T) {
		addedIn(t, file.Ledger, func() (ledger.Conn, func() error) {
			tx, err := file.DB.BeginTx(t.Context(), nil)
			must.OK(t, err)
			return sqlite.Wrap(tx), tx.Rollback
		})
	})
	t.Run("pgx", func(t *testing.T) {
		addedIn(t, pg, func() (ledger.Conn, func() error) {
			tx, err := pool.Begin(t.Context())
			must.OK(t, err)
			return postgres.Wrap(tx), func() error { return tx.Rollback(context.WithoutCancel(t.Context())) }
		})
	})
}

func addedIn(t *testing.T, l *ledger.Ledger, begin func() (ledger.Conn, func() error)) {
	before := mail{To: "before"}
	must.Do(t)(welcome.Add(t.Context(), l, before))
	tx, rollback := begin()
	in := mail{To: "in it", Text: "hello"}
	for _, m := range []mail{before, in} {
		must.Do(t)(welcome.AddTx(t.Context(), l, tx, m))
	}
	if it := ledgertest.Added(t, l, tx, welcome, in); it.Key != "in it" || it.State != ledger.StateReady {
		t.Errorf("%+v", it)
	}
	ledgertest.NotAdded(t, l, tx, welcome, mail{To: "else"})
	ledgertest.Added(t, l, nil, welcome, before)
	for want, assert := range map[string]func(t testing.TB){
		`no item of kind welcome has the scope "" and the key "else"`: func(t testing.TB) {
			ledgertest.Added(t, l, tx, welcome, mail{To: "else"})
		},
		`the payload is {"to":"in it","text":"hello"}, not {"to":"in it"}`: func(t testing.TB) {
			ledgertest.Added(t, l, tx, welcome, mail{To: "in it"})
		},
		"was there before this transaction":    func(t testing.TB) { ledgertest.Added(t, l, tx, welcome, before) },
		`has the scope "" and the key "in it"`: func(t testing.TB) { ledgertest.NotAdded(t, l, tx, welcome, in) },
		`no item of kind welcome has the scope "news"`: func(t testing.TB) {
			k := welcome
			k.Scope = "news"
			ledgertest.Added(t, l, tx, k, in)
		},
	} {
		if got := failure(t, assert); !strings.Contains(got, want) {
			t.Errorf("fails with %q, want %q", got, want)
		}
	}
	must.OK(t, rollback())
	ledgertest.NotAdded(t, l, nil, welcome, in)
}

// A transaction of the store in memory has the ledger to itself. Its end may be deferred as well.
func TestAddedInMemory(t *testing.T) {
	store := memory.New(memory.Options{})
	l := ledger.New(store, ledger.Options{})
	tx := store.Begin()
	defer tx.End(false)
	must.Do(t)(welcome.AddTx(t.Context(), l, tx, mail{To: "ada"}))
	ledgertest.Added(t, l, tx, welcome, mail{To: "ada"})
	tx.End(true)
	ledgertest.Added(t, l, nil, welcome, mail{To: "ada"})
}

// The name of a test is part of the path of its file.
func TestFileInAnOddFolder(t *testing.T) {
	t.Run("50%25 #1", func(t *testing.T) {
		l := ledgertest.File(t)
		tx, err := l.DB.BeginTx(t.Context(), nil)
		must.OK(t, err)
		defer tx.Rollback()
		must.Do(t)(welcome.AddTx(t.Context(), l.Ledger, sqlite.Wrap(tx), mail{To: "ada"}))
	})
}

// A retry waits until the clock of the test has moved; what a handler adds is worked in the same call.
func TestRunDue(t *testing.T) {
	for name, make := range map[string]func(testing.TB) *ledgertest.Ledger{"memory": ledgertest.Memory,
		"file": ledgertest.File} {
		t.Run(name, func(t *testing.T) {
			l := make(t)
			child := typed.Kind[string]{Name: "a-child"}
			var steps []string
			handlers := map[string]worker.Handler{
				"welcome": welcome.Handler(func(ctx context.Context, m mail) error {
					steps = append(steps, m.To)
					if typed.Lease(ctx).First() {
						return typed.RetryAfter(time.Hour, errors.New("busy"))
					}
					return typed.Emit(ctx, child, m.To)
				}),
				"a-child": child.Handler(func(_ context.Context, s string) error {
					steps = append(steps, "child of "+s)
					return nil
				}),
			}
			must.Do(t)(welcome.Add(t.Context(), l.Ledger, mail{To: "ada"}))
			states := func() (states []ledger.State) {
				for _, e := range ledgertest.RunDue(t, l.Ledger, handlers) {
					states = append(states, e.State)
				}
				return states
			}
			if diff := cmp.Diff([]ledger.State{ledger.StateWaiting}, states()); diff != "" {
				t.Errorf("at first (-want +got):\n%s", diff)
			}
			l.Clock.Advance(59 * time.Minute)
			if got := states(); got != nil {
				t.Errorf("before its time: %v", got)
			}
			l.Clock.Advance(time.Minute)
			if diff := cmp.Diff([]ledger.State{ledger.StateDone, ledger.StateDone}, states()); diff != "" {
				t.Errorf("in its time (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"ada", "ada", "child of ada"}, steps); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
		})
	}
}

// An item that is due again at once after each attempt fails the test. The test does not run for ever.
func TestRunDueEnds(t *testing.T) {
	l := ledgertest.Memory(t)
	must.Do(t)(welcome.Add(t.Context(), l.Ledger, mail{To: "ada"}))
	handlers := map[string]worker.Handler{"welcome": worker.Func(func(context.Context, *ledger.Lease) ledger.Result {
		return ledger.Snooze(0, "at once")
	})}
	got := failure(t, func(f testing.TB) { ledgertest.RunDue(f, l.Ledger, handlers) })
	if !strings.Contains(got, "is due again after 100 attempts") {
		t.Errorf("fails with %q", got)
	}
}

// RunDue notices a handler that reports ErrRecorded without FinishTx, or after its transaction was rolled back.
func TestRunDueRecorded(t *testing.T) {
	l := ledgertest.File(t)
	must.Do(t)(welcome.Add(t.Context(), l.Ledger, mail{To: "ada"}))
	ended := ledgertest.RunDue(t, l.Ledger, map[string]worker.Handler{"welcome": welcome.Handler(func(context.Context,
		mail) error {
		return typed.ErrRecorded
	})})
	if len(ended) != 1 || ended[0].Result.Code != "not_recorded" || ended[0].State != ledger.StateWaiting {
		t.Errorf("without FinishTx: %+v", ended)
	}
	l.Clock.Advance(time.Hour)
	rolledBack := welcome.Handler(func(ctx context.Context, _ mail) error {
		tx, err := l.DB.BeginTx(ctx, nil)
		must.OK(t, err)
		must.OK(t, l.FinishTx(ctx, sqlite.Wrap(tx), ledger.Ending{Lease: typed.Lease(ctx), Result: ledger.Done(nil)}))
		must.OK(t, tx.Rollback())
		return typed.ErrRecorded
	})
	got := failure(t, func(f testing.TB) {
		ledgertest.RunDue(f, l.Ledger, map[string]worker.Handler{"welcome": rolledBack})
	})
	if !strings.Contains(got, "its transaction has not committed") {
		t.Errorf("rolled back: fails with %q", got)
	}
}

// Items that no handler of the test works are named.
func TestRunDueNamesOtherKinds(t *testing.T) {
	l := ledgertest.Memory(t)
	must.Do(t)(welcome.AddMany(t.Context(), l.Ledger, []mail{{To: "ada"}, {To: "ben"}}))
	f := &failing{TB: t}
	ledgertest.RunDue(f, l.Ledger, nil)
	if want := "ledgertest: 2 items of kind welcome are due and have no handler here"; f.text != want {
		t.Errorf("logged %q, want %q", f.text, want)
	}
}
