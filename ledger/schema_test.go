package ledger_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
)

// migrated is a store whose schema another program changes.
type migrated struct {
	ledger.Store
	compatible atomic.Int64 // see ledger.Schema
	looks      atomic.Int64 // calls of Schema
	away       atomic.Bool  // Schema fails
}

func (s *migrated) Schema(context.Context) (ledger.Schema, error) {
	s.looks.Add(1)
	if s.away.Load() {
		return ledger.Schema{}, ledger.ErrUnavailable
	}
	return ledger.Schema{Ledger: "the-ledger", Have: 9, Compatible: int(s.compatible.Load()), Known: 7}, nil
}

// lookTime is the time within which a program notices that it may not use the ledger any more.
const lookTime = 5 * time.Second

// Once this program may not use a ledger any more, it begins nothing, and can end all that it has begun.
func TestLedgerOfANewerRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		store := &migrated{Store: memory.New(memory.Options{})}
		l := ledger.New(store, ledger.Options{})
		item := func(key string) ledger.NewItem { return ledger.NewItem{Kind: "k", Key: key} }
		must.Do(t)(l.Add(ctx, item("a"), item("b"), item("c")))
		held, err := l.Claim(ctx, ledger.Claim{Kind: "k", Agent: "me", Limit: 2, TTL: time.Hour})
		if err != nil || len(held) != 2 {
			t.Fatalf("%d leases, %v", len(held), err)
		}
		store.compatible.Store(8)
		if _, err := l.Add(ctx, item("soon")); err != nil || store.looks.Load() != 0 {
			t.Errorf("%v, %d looks right after it was opened", err, store.looks.Load())
		}
		time.Sleep(lookTime)
		list := func() (err error) {
			for _, e := range l.List(ctx, ledger.Filter{}, 0) {
				err = e
			}
			return err
		}
		for name, begin := range map[string]func() error{
			"Add":          func() error { _, err := l.Add(ctx, item("late")); return err },
			"Try":          func() error { _, err := l.Try(ctx, item("late")); return err },
			"Claim":        func() error { _, err := l.Claim(ctx, ledger.Claim{Kind: "k", Agent: "me", Limit: 1}); return err },
			"Promote":      func() error { _, err := l.Promote(ctx, 1); return err },
			"Expire":       func() error { _, err := l.Expire(ctx, 1); return err },
			"Prune":        func() error { _, err := l.Prune(ctx, 1); return err },
			"PruneOlder":   func() error { _, err := l.PruneOlder(ctx, "operator:me", 0); return err },
			"Retry":        func() error { _, err := l.Retry(ctx, "operator:me", ledger.Filter{}); return err },
			"ForceRelease": func() error { _, err := l.ForceRelease(ctx, "operator:me", ledger.Filter{}); return err },
			"SetKind":      func() error { return l.SetKind(ctx, "operator:me", ledger.Kind{Name: "k"}) },
			"Define":       func() error { return l.Define(ctx, ledger.Agent{Name: "me"}, "k", "p@1+a", "{}") },
			"Beat":         func() error { return l.Beat(ctx, ledger.Agent{Name: "me"}, time.Minute) },
			"Kinds":        func() error { _, err := l.Kinds(ctx); return err },
			"List":         list,
			"Ended":        func() error { _, err := l.Ended(ctx, ledger.EndedQuery{Limit: 1}); return err },
			"Locks":        func() error { _, _, err := l.LockStore().Locks(ctx, "name"); return err },
		} {
			if err := begin(); !errors.Is(err, ledger.ErrSchema) ||
				!strings.Contains(err.Error(), "the ledger in the-ledger has schema 9, which programs that know schema 8 or "+
					"later may use, and this one knows 7") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := store.looks.Load(); n != 1 {
			t.Errorf("%d looks, want one", n)
		}
		_, extended := l.Extend(ctx, time.Hour, held...)
		ends := []error{extended[0], l.Held(ctx, held...)[0], l.Beat(ctx, ledger.Agent{Name: "me"}, 0),
			l.Finish(ctx, ledger.Ending{Lease: held[0], Result: ledger.Done(nil)})[0],
			l.Finish(ctx, ledger.Ending{Lease: held[1], Result: ledger.Result{Outcome: ledger.OutcomeReleased}})[0],
			l.LockStore().Update(ctx, nil, func(tx ledger.Tx) error { return nil })}
		if err := errors.Join(ends...); err != nil {
			t.Errorf("what was begun cannot be ended: %v", err)
		}
		time.Sleep(lookTime)
		store.compatible.Store(7) // a backup was restored
		if _, err := l.Add(ctx, item("again")); err != nil {
			t.Error(err)
		}
	})
}

// Once a ledger was restored, programs that had it open begin nothing more, and one that opens it goes on.
func TestLedgerThatWasRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store := t.Context(), memory.New(memory.Options{})
		open := func() *ledger.Ledger { return ledger.New(store, ledger.Options{}) }
		before, operator := open(), open()
		must.Do(t)(before.Add(ctx, ledger.NewItem{Kind: "k", Key: "a"}))
		done, _, err := operator.Restored(ctx, "operator:me")
		must.OK(t, err)
		time.Sleep(lookTime)
		claim := ledger.Claim{Kind: "k", Agent: "me", Limit: 1}
		if _, err := before.Claim(ctx, claim); !errors.Is(err, ledger.ErrSchema) ||
			!strings.Contains(err.Error(), "it is in incarnation 2, and was in 1") {
			t.Error(err)
		}
		if _, err := operator.Add(ctx, ledger.NewItem{Kind: "k", Key: "b"}); err != nil {
			t.Error(err)
		}
		leases, err := open().Claim(ctx, claim)
		if err != nil || len(leases) != 1 || leases[0].Attempt != done.Floors[0]+1 {
			t.Errorf("%v, %v", leases, err)
		}
	})
}

// In the caller's transaction no call waits for a check of the schema: the transaction may hold the only connection.
func TestLookInATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &migrated{Store: memory.New(memory.Options{})}
		l := ledger.New(store, ledger.Options{})
		store.compatible.Store(8)
		time.Sleep(lookTime)
		for _, told := range []bool{false, true} {
			_, err := l.AddTx(t.Context(), inTransaction{}, ledger.NewItem{Kind: "k", Key: "a"})
			if errors.Is(err, ledger.ErrSchema) != told {
				t.Errorf("%v, want told: %t", err, told)
			}
			synctest.Wait()
		}
	})
}

// inTransaction is a connection of the caller's. A store in memory does not take it.
type inTransaction struct{ ledger.Conn }

func (inTransaction) Dialect() string { return "any" }

// Any number of callers make one check of the schema in lookTime, and a check that fails changes nothing.
func TestLooksAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &migrated{Store: memory.New(memory.Options{})}
		l := ledger.New(store, ledger.Options{})
		store.away.Store(true)
		const rounds = 4
		for range rounds {
			time.Sleep(lookTime)
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() {
					if _, err := l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: uuid.NewString()}); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		}
		if n := store.looks.Load(); n != rounds {
			t.Errorf("%d looks in %v, want %d", n, rounds*lookTime, rounds)
		}
	})
}
