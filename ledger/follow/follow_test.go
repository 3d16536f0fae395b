package follow

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/ledger/postgres"
)

// TestLateCommit: the attempt that ended first is committed last, after the follower has reported later ones. It is
// reported, too, and each attempt is reported once.
func TestLateCommit(t *testing.T) {
	store, err := postgres.Open(t.Context(), pgtest.Pool(t), postgres.Options{Schema: pgtest.Schema(t)})
	must.OK(t, err)
	l := ledger.New(store, ledger.Options{})
	defer l.Close()
	db, err := sql.Open("pgx", pgtest.URL(t))
	must.OK(t, err)
	defer db.Close()
	var items []ledger.NewItem
	for _, key := range []string{"early", "b", "c", "d"} {
		items = append(items, ledger.NewItem{Kind: "k", Key: key})
	}
	must.Do(t)(l.Add(t.Context(), items...))
	leases, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: len(items)})
	if err != nil || len(leases) != len(items) {
		t.Fatalf("%d leases, %v", len(leases), err)
	}
	leased := func(key string) *ledger.Lease {
		return leases[slices.IndexFunc(leases, func(ls *ledger.Lease) bool { return ls.Key == key })]
	}
	tx, err := db.BeginTx(t.Context(), nil)
	must.OK(t, err)
	defer tx.Rollback()
	must.OK(t, l.FinishTx(t.Context(), postgres.WrapSQL(tx), ledger.Ending{Lease: leased("early"),
		Result: ledger.Done(nil)}))
	now, err := l.Now(t.Context())
	must.OK(t, err)
	follow := New(l, ledger.EndedQuery{}, now.Add(-time.Minute))
	follow.query.Limit = 2
	var told []string
	poll := func(want ...string) {
		t.Helper()
		told = nil
		must.OK(t, follow.Poll(t.Context(), func(e ledger.Ended) error {
			told = append(told, e.Key)
			return nil
		}))
		if !slices.Equal(told, want) {
			t.Errorf("told %s, want %s", told, want)
		}
	}
	for _, key := range []string{"b", "c", "d"} {
		if errs := l.Finish(t.Context(), ledger.Ending{Lease: leased(key), Result: ledger.Done(nil)}); errs[0] != nil {
			t.Fatal(errs[0])
		}
	}
	poll("b", "c", "d")
	poll()
	must.OK(t, tx.Commit())
	poll("early")
	poll()
}

// TestClockSetBack: the clock of the database goes back, as after a failover to a standby whose clock is behind.
// Attempts that end after that are reported, and none is reported twice.
func TestClockSetBack(t *testing.T) {
	clock := ledgertest.NewClock(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	l := ledger.New(memory.New(memory.Options{Now: clock.Now}), ledger.Options{})
	follow := New(l, ledger.EndedQuery{}, clock.Now())
	var told []string
	tell := func(e ledger.Ended) error { told = append(told, e.Key); return nil }
	for _, key := range []string{"far before", "long before", "before", "after", "later", "last"} {
		must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: key}))
		leases, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: 1})
		if err != nil || len(leases) != 1 {
			t.Fatalf("%d leases, %v", len(leases), err)
		}
		clock.Advance(10 * time.Second)
		must.OK(t, l.Finish(t.Context(), ledger.Ending{Lease: leases[0], Result: ledger.Done(nil)})[0])
		must.OK(t, follow.Poll(t.Context(), tell))
		if key == "before" {
			clock.Advance(-36 * time.Second) // before all of it
			must.OK(t, follow.Poll(t.Context(), tell))
		}
	}
	if !slices.Equal(told, []string{"far before", "long before", "before", "after", "later", "last"}) {
		t.Errorf("told %v", told)
	}
}

// All yields the attempts that end after its call, and ends with its loop or its context.
func TestAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ledger.New(memory.New(memory.Options{}), ledger.Options{})
		end := func(key string) {
			if _, err := l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: key}); err != nil {
				t.Error(err)
			}
			leases, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: 1})
			if err != nil || len(leases) != 1 {
				t.Errorf("%d leases, %v", len(leases), err)
				return
			}
			if err := l.Finish(t.Context(), ledger.Ending{Lease: leases[0], Result: ledger.Done(nil)})[0]; err != nil {
				t.Error(err)
			}
		}
		end("before")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(1500*time.Millisecond, func() { end("a") })
		time.AfterFunc(2500*time.Millisecond, func() { end("b") })
		time.AfterFunc(time.Minute, cancel)
		var told []string
		for e, err := range All(ctx, l, ledger.EndedQuery{Desc: true}, time.Second) { // the order is that of their ends
			must.OK(t, err)
			told = append(told, e.Key)
		}
		if !slices.Equal(told, []string{"a", "b"}) {
			t.Errorf("told %s", told)
		}
		time.AfterFunc(1500*time.Millisecond, func() { end("c") })
		for e, err := range All(t.Context(), l, ledger.EndedQuery{}, time.Second) {
			if err != nil || e.Key != "c" {
				t.Errorf("%s, %v", e.Key, err)
			}
			break
		}
	})
}

// spy is a ledger whose commits may wait. It notes where the last poll began.
type spy struct {
	*ledger.Ledger
	waits bool
	after time.Time
}

func (s *spy) Ended(ctx context.Context, q ledger.EndedQuery) ([]ledger.Ended, error) {
	if !q.Desc {
		s.after = q.After.At
	}
	if s.waits {
		return nil, nil
	}
	return s.Ledger.Ended(ctx, q)
}

// TestQuiet: while no attempt matches, polls do not read more and more. An attempt that matches is reported although
// its commit waited for long, with all others.
func TestQuiet(t *testing.T) {
	clock := ledgertest.NewClock(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	l := &spy{Ledger: ledger.New(memory.New(memory.Options{Now: clock.Now}), ledger.Options{})}
	follow := New(l, ledger.EndedQuery{Filter: ledger.Filter{Key: "wanted"}}, clock.Now())
	var told []string
	for _, key := range []string{"a", "wanted", "b"} {
		clock.Advance(time.Hour)
		must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: key}))
		leases, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: 1})
		if err != nil || len(leases) != 1 {
			t.Fatalf("%d leases, %v", len(leases), err)
		}
		must.OK(t, l.Finish(t.Context(), ledger.Ending{Lease: leases[0], Result: ledger.Done(nil)})[0])
		for _, l.waits = range []bool{key == "wanted", false, false} {
			clock.Advance(time.Minute)
			must.OK(t, follow.Poll(t.Context(), func(e ledger.Ended) error { told = append(told, e.Key); return nil }))
		}
		if from := clock.Now().Sub(l.after); from > 3*time.Minute+overlap {
			t.Errorf("after %s a poll reads the last %v", key, from)
		}
	}
	if !slices.Equal(told, []string{"wanted"}) {
		t.Errorf("told %v", told)
	}
}

// TestBegin: of the attempts that ended just before, the last n are reported, and the others are not reported later.
func TestBegin(t *testing.T) {
	for n, want := range map[int][]string{0: {"new"}, 1: {"c", "new"}, 2: {"b", "c", "new"}, -1: {"failed", "bad"}} {
		l := ledger.New(memory.New(memory.Options{}), ledger.Options{})
		done := func(keys ...string) {
			t.Helper()
			for _, key := range keys {
				must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: key}))
				leases, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: 1})
				must.OK(t, err)
				end := ledger.Ending{Lease: leases[0], Result: ledger.Done(nil)}
				if key == "failed" || key == "bad" {
					end.Result = ledger.Fail(errors.New(key))
				}
				must.OK(t, l.Finish(t.Context(), end)[0])
			}
		}
		done("failed", "a", "b", "c")
		now, err := l.Now(t.Context())
		must.OK(t, err)
		f := New(l, ledger.EndedQuery{Failed: n < 0}, now) // then the last one that failed
		var told []string
		tell := func(e ledger.Ended) error { told = append(told, e.Key); return nil }
		must.OK(t, f.Begin(t.Context(), max(n, -n), tell))
		done("new")
		if n < 0 {
			done("bad")
		}
		if err := f.Poll(t.Context(), tell); err != nil || !slices.Equal(told, want) {
			t.Errorf("after %d: told %q, want %q, %v", n, told, want, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
