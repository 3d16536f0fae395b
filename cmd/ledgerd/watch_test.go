package main

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/ledger/postgres"
)

// TestWaiter: what ends is counted, wherever it stands among what is waited for; an item that lags holds up no other.
func TestWaiter(t *testing.T) {
	l := ledger.New(memory.New(memory.Options{}), ledger.Options{})
	const items = 3*waitPage + 7
	var all []ledger.NewItem
	for i := range items {
		all = append(all, ledger.NewItem{Kind: "k", Key: strconv.Itoa(i)})
	}
	added, err := l.Add(t.Context(), all...)
	if err != nil {
		t.Fatal(err)
	}
	w := &waiter{ledger: l, waited: waited{Items: items}}
	for _, a := range added {
		w.open = append(w.open, a.ID)
	}
	if late, err := w.until(t.Context(), time.Nanosecond); !late || err != nil || len(w.open) != items {
		t.Fatalf("%v, %v, %d open", late, err, len(w.open))
	}
	if n, err := l.Cancel(t.Context(), "ann", ledger.Filter{Above: added[0].ID}); n != items-1 || err != nil {
		t.Fatal(n, err)
	}
	if err := w.look(t.Context(), w.all()); err != nil {
		t.Fatal(err)
	}
	if p := w.progress(); p.Total != items || p.Ended != items-1 || p.attempts != items-1 || len(w.open) != 1 {
		t.Errorf("%+v, %d open", p, len(w.open))
	}
	if _, err := l.Cancel(t.Context(), "ann", ledger.Filter{}); err != nil {
		t.Fatal(err)
	}
	if late, err := w.until(t.Context(), 0); late || err != nil || w.waited.Cancelled != items {
		t.Errorf("%v, %v, %+v", late, err, &w.waited)
	}
}

// TestTailLateCommit: what ended first is committed last, after tail has told what ended later: it is told all
// the same, and everything is told once.
func TestTailLateCommit(t *testing.T) {
	m := newMachine(t, pgtest.SchemaURL(t))
	l := m.ledger()
	var items []ledger.NewItem
	for _, key := range []string{"early", "b", "c", "d"} {
		items = append(items, ledger.NewItem{Kind: "k", Key: key})
	}
	if _, err := l.Add(t.Context(), items...); err != nil {
		t.Fatal(err)
	}
	leases, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: len(items)})
	if err != nil || len(leases) != len(items) {
		t.Fatalf("%d leases, %v", len(leases), err)
	}
	leased := func(key string) *ledger.Lease {
		return leases[slices.IndexFunc(leases, func(ls *ledger.Lease) bool { return ls.Key == key })]
	}
	tx, err := m.database().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if err := l.FinishTx(t.Context(), postgres.WrapSQL(tx), ledger.Ending{Lease: leased("early"), Result: ledger.Done(nil)}); err != nil {
		t.Fatal(err)
	}
	now, err := l.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	follow := follower{ledger: l, query: ledger.EndedQuery{Limit: 2}, reached: now.Add(-time.Minute), seen: map[ledger.Mark]bool{}}
	var told []string
	poll := func(want ...string) {
		t.Helper()
		told = nil
		if err := follow.poll(t.Context(), func(e ledger.Ended) error { told = append(told, e.Key); return nil }); err != nil {
			t.Fatal(err)
		}
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
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	poll("early")
	poll()
}
