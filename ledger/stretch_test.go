package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/filter"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/ledger/order"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// slow is a store that takes a second for each query.
type slow struct{ ledger.Store }

func (s slow) Count(ctx context.Context, f ledger.Filter) (int64, error) {
	time.Sleep(time.Second)
	return s.Store.Count(ctx, f)
}

func (s slow) CountRounds(ctx context.Context, f ledger.Filter, column string,
	each func(ledger.RoundCount) error) error {
	time.Sleep(time.Second)
	return s.Store.CountRounds(ctx, f, column, each)
}

func (s slow) Records(ctx context.Context, q ledger.RecordQuery) ([]ledger.Record, error) {
	time.Sleep(time.Second)
	return s.Store.Records(ctx, q)
}

func (s slow) Ended(ctx context.Context, q ledger.EndedQuery) ([]ledger.Ended, error) {
	time.Sleep(time.Second)
	return s.Store.Ended(ctx, q)
}

// TestBoundedLooks: a call with a time limit ends soon after it, reports that it has not read everything, and has read
// a part; without a limit it reads everything.
func TestBoundedLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const items, within = 4_400, 1500 * time.Millisecond
		ctx := t.Context()
		store := memory.New(memory.Options{})
		quick, l := ledger.New(store, ledger.Options{}), ledger.New(slow{store}, ledger.Options{})
		for i := 0; i < items; i += bounds.MaxBatch {
			batch := make([]ledger.NewItem, min(bounds.MaxBatch, items-i))
			for j := range batch {
				batch[j] = ledger.NewItem{Kind: "k", Key: fmt.Sprint(i + j), Payload: []byte(`{"a":1}`)}
			}
			must.Do(t)(quick.Add(ctx, batch...))
		}
		for {
			leases, err := quick.Claim(ctx, ledger.Claim{Kind: "k", Agent: "a", Limit: bounds.MaxBatch})
			must.OK(t, err)
			if len(leases) == 0 {
				break
			}
			var endings []ledger.Ending
			for _, lease := range leases {
				endings = append(endings, ledger.Ending{Lease: lease, Result: ledger.Permanent(errors.New("no"))})
			}
			must.OK(t, errors.Join(quick.Finish(ctx, endings...)...))
		}
		all := ledger.Filter{ErrorHas: "no"}
		failed := all.And(ledger.Filter{Outcomes: []ledger.Outcome{ledger.OutcomeFailed}})
		dead := all.And(ledger.Filter{States: []ledger.State{ledger.StateDead}})
		field, err := filter.Parse("payload.a:1", time.Time{})
		must.OK(t, err)
		count := func(f ledger.Filter) func(time.Duration) (int64, bool, error) {
			return func(d time.Duration) (int64, bool, error) { return l.CountUpTo(ctx, f, 0, d) }
		}
		groups := func(f ledger.Filter) func(time.Duration) (int64, bool, error) {
			return func(d time.Duration) (n int64, whole bool, err error) {
				groups, whole, err := l.Groups(ctx, f, "a", d)
				for _, g := range groups {
					n += g.Failed
				}
				return n, whole, err
			}
		}
		walk := func(w ledger.Walk) func(time.Duration) (int64, bool, error) {
			return func(d time.Duration) (n int64, whole bool, err error) {
				w := w
				w.Time = d
				for _, err := range l.Walk(ctx, &w) {
					if err != nil {
						return n, false, err
					}
					n++
				}
				return n, !w.Cut, nil
			}
		}
		for name, ask := range map[string]func(time.Duration) (int64, bool, error){
			"count": count(all), "count by field": count(field), "groups": groups(all), "groups by field": groups(field),
			"by id": walk(ledger.Walk{Filter: all}), "by end": walk(ledger.Walk{Filter: all, Order: order.Ended, Desc: true}),
			"failed by end": walk(ledger.Walk{Filter: failed, Order: order.Ended}),
			"dead by end":   walk(ledger.Walk{Filter: dead, Order: order.Ended, Desc: true}),
			"by key":        walk(ledger.Walk{Filter: all, Order: "key", Top: items}),
		} {
			began := time.Now()
			n, whole, err := ask(within)
			if took := time.Since(began); err != nil || whole || n == 0 || n == items || took > 3*within {
				t.Errorf("%s: %d of %d, all %t, after %v, %v; want a part within %v", name, n, items, whole, took, err, within)
			}
			if n, whole, err := ask(0); err != nil || !whole || n != items {
				t.Errorf("%s: %d of %d, all %t, %v; want all", name, n, items, whole, err)
			}
		}
		for _, f := range []ledger.Filter{all, field} {
			for most, want := range map[int64]bool{items / 3: false, items: true, items + 1: true} {
				if n, whole, err := l.CountUpTo(ctx, f, most, 0); err != nil || whole != want || n != min(most, items) {
					t.Errorf("at most %d of %d: %d, all %t, %v", most, items, n, whole, err)
				}
			}
		}
		// AttemptGroups goes on after a full page of which the filter matches nothing.
		some := ledger.Filter{Prefix: "1", Since: time.Now().Add(-time.Hour)}
		got, _, err := quick.AttemptGroups(ctx, some, []string{stats.ByKind}, 0)
		if n := got[stats.AttemptGroup{Kind: "k"}][ledger.OutcomeFailed]; n != 1111 || err != nil {
			t.Errorf("%d attempts of 1111 keys that begin with 1, %v", n, err)
		}
	})
}

// TestSlowWalksGoOn: a walk in parts comes to the end, also if every query takes longer than the time of a part.
func TestSlowWalksGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		quick, l := ledger.New(store, ledger.Options{}), ledger.New(slow{store}, ledger.Options{})
		for i := range 3 {
			must.Do(t)(quick.Add(t.Context(), ledger.NewItem{Kind: "k", Key: fmt.Sprint(i)}))
			leases, err := quick.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: 1})
			if err != nil || len(leases) != 1 {
				t.Fatal(leases, err)
			}
			if errs := quick.Finish(t.Context(), ledger.Ending{Lease: leases[0], Result: ledger.Done(nil)}); errs[0] != nil {
				t.Fatal(errs[0])
			}
		}
		lately := ledger.Filter{Since: time.Now().Add(-time.Hour)}
		for _, w := range []ledger.Walk{{}, {Desc: true}, {Order: order.Ended}, {Order: order.Ended, Desc: true},
			{Filter: lately}, {Filter: lately, Desc: true}} {
			w.Time = time.Millisecond
			n, parts := 0, 0
			for w.Cut = true; w.Cut && parts < 100; parts++ {
				w.After, w.Cut = w.Reached, false
				for _, err := range l.Walk(t.Context(), &w) {
					must.OK(t, err)
					n++
				}
			}
			if n != 3 || w.Cut {
				t.Errorf("order %q, descending %t: %d items in %d parts, cut %t; want all 3", w.Order, w.Desc, n, parts, w.Cut)
			}
		}
	})
}

// strict is a store that answers no queries of a caller who has gone.
type strict struct{ ledger.Store }

func (s strict) Records(ctx context.Context, q ledger.RecordQuery) ([]ledger.Record, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return s.Store.Records(ctx, q)
}

// TestStoppedWalk: a walk whose receiver wants no more makes no further query. An error of that would be a panic.
func TestStoppedWalk(t *testing.T) {
	l := ledger.New(strict{memory.New(memory.Options{})}, ledger.Options{})
	const items = 30_000 // the last one is in the fourth window, after which the windows are the largest
	for i := 0; i < items; i += bounds.MaxBatch {
		batch := make([]ledger.NewItem, bounds.MaxBatch)
		for j := range batch {
			batch[j] = ledger.NewItem{Kind: "k", Key: fmt.Sprint(i + j)}
		}
		must.Do(t)(l.Add(t.Context(), batch...))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for it, err := range l.Walk(ctx, &ledger.Walk{Filter: ledger.Filter{Prefix: fmt.Sprint(items - 1)}}) {
		if must.OK(t, err); it.ID != items {
			t.Errorf("item %d", it.ID)
		}
		cancel()
		break
	}
}

// named is a store that records the filters of queries that do not name items, and cannot read ends of attempts.
type named struct {
	ledger.Store
	unnamed []ledger.Filter
}

func (s *named) Ended(context.Context, ledger.EndedQuery) ([]ledger.Ended, error) {
	return nil, ledger.ErrUnavailable
}

func (s *named) Records(ctx context.Context, q ledger.RecordQuery) ([]ledger.Record, error) {
	if q.Limit > 1 && !q.Filter.NamesItems() { // with 1 it reads the newest item
		s.unnamed = append(s.unnamed, q.Filter)
	}
	return s.Store.Records(ctx, q)
}

func (s *named) Count(ctx context.Context, f ledger.Filter) (int64, error) {
	if !f.NamesItems() {
		s.unnamed = append(s.unnamed, f)
	}
	return s.Store.Count(ctx, f)
}

// TestKeyNamesItems: an index leads to all that a filter with a key can match, with any further conditions.
func TestKeyNamesItems(t *testing.T) {
	store := &named{Store: memory.New(memory.Options{})}
	l := ledger.New(store, ledger.Options{})
	for _, scope := range []string{"", "a", "b"} {
		must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Scope: scope, Key: "x"}, ledger.NewItem{Kind: "j",
			Scope: scope, Key: "y"}))
	}
	for where, want := range map[string]int64{"key:x": 3, "key:x kind:k": 3, "key:x kind:j": 0, "key:x scope:a": 1,
		"key:x state:ready since:1h": 3, "key:none": 0} {
		f, err := filter.Parse(where, time.Now())
		must.OK(t, err)
		var n int64
		for _, err := range l.List(t.Context(), f, 0) {
			if n++; err != nil {
				t.Fatal(err)
			}
		}
		counted, err := l.Count(t.Context(), f)
		if n != want || counted != want || err != nil || len(store.unnamed) > 0 {
			t.Errorf("%s: %d listed, %d counted, %v, want %d; %d queries do not name items", where, n, counted, err, want,
				len(store.unnamed))
		}
	}
}

// TestManyByEnd: a walk in the order of ends reads the ends of attempts if no index leads to its items, or if these
// have large payloads.
func TestManyByEnd(t *testing.T) {
	l := ledger.New(&named{Store: memory.New(memory.Options{})}, ledger.Options{})
	ended := func(states ...ledger.State) (err error) {
		for _, err = range l.Walk(t.Context(), &ledger.Walk{Filter: ledger.Filter{States: states}, Order: order.Ended}) {
		}
		return err
	}
	large := bytes.Repeat([]byte{'1'}, bounds.MaxPayload)
	for i := range 17 {
		must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: fmt.Sprint(i), Payload: large}))
		leases, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: 1})
		must.OK(t, err)
		end := ledger.Ending{Lease: leases[0], Result: ledger.Permanent(errors.New("gone"))}
		must.OK(t, errors.Join(l.Finish(t.Context(), end)...))
		if i < 15 {
			continue
		}
		few := ended(ledger.StateDead)
		if many := i == 16; (few != nil) != many || ended(ledger.StateDead, ledger.StateLeased) == nil {
			t.Errorf("%d items: %v", i+1, few)
		}
	}
}

// TestNoCountAfterAnError: nothing is counted if the ends of attempts cannot be read: they bound the count.
func TestNoCountAfterAnError(t *testing.T) {
	store := &named{Store: memory.New(memory.Options{})}
	l := ledger.New(store, ledger.Options{})
	must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "x"}))
	_, _, err := l.CountUpTo(t.Context(), ledger.Filter{Since: time.Now().Add(-time.Hour)}, 0, 0)
	if !errors.Is(err, ledger.ErrUnavailable) || len(store.unnamed) > 0 {
		t.Errorf("%v, after %d counts", err, len(store.unnamed))
	}
}

// noEnds is a store of which the ends of attempts must not be read.
type noEnds struct {
	ledger.Store
	t *testing.T
}

func (s noEnds) Ended(context.Context, ledger.EndedQuery) ([]ledger.Ended, error) {
	s.t.Error("the ends of attempts are read, though an index leads to the state")
	return nil, nil
}

// TestStatesLeadToItems: a walk through the items of a state that has an index, also in the order of ends, reads no
// ends of attempts, since there may be many later ones of other items. In that order it goes on where it stopped.
func TestStatesLeadToItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ledger.New(noEnds{memory.New(memory.Options{}), t}, ledger.Options{})
		defer l.Close()
		for _, key := range []string{"a", "b", "c", "d"} {
			must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: key}))
		}
		leases, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: 4})
		if err != nil || len(leases) != 4 {
			t.Fatal(leases, err)
		}
		look := func(state ledger.State, by order.By, desc bool, want string) {
			t.Helper()
			var keys string
			f := ledger.Filter{Since: time.Now().Add(-time.Hour), States: []ledger.State{state}}
			w := &ledger.Walk{Filter: f, Order: by, Desc: desc}
			for more := true; more; w.After = w.Reached {
				more = false
				for it, err := range l.Walk(t.Context(), w) {
					must.OK(t, err)
					keys += it.Key
					more = true
					break
				}
			}
			if keys != want {
				t.Errorf("%s by %s, descending %t: %q, want %q", state, by, desc, keys, want)
			}
		}
		look(ledger.StateLeased, order.ID, true, "dcba")
		look(ledger.StateLeased, order.Ended, true, "")
		for _, i := range []int{2, 0, 3} {
			time.Sleep(time.Second)
			end := ledger.Ending{Lease: leases[i], Result: ledger.Permanent(errors.New("gone"))}
			must.OK(t, errors.Join(l.Finish(t.Context(), end)...))
		}
		look(ledger.StateDead, order.ID, false, "acd")
		look(ledger.StateDead, order.Ended, false, "cad")
		look(ledger.StateDead, order.Ended, true, "dac")
	})
}

// sparse is a store that reports a last item with a great id, and keeps the most that a query has asked for.
type sparse struct {
	ledger.Store
	last  int64
	dense bool  // it reports items with all other ids, too, of which none matches
	ids   int64 // that a count had to look at
	asked int   // number of counts
	ended int   // attempts
}

func (s *sparse) Records(ctx context.Context, q ledger.RecordQuery) ([]ledger.Record, error) {
	recs, err := s.Store.Records(ctx, q)
	if _, upTo := q.Filter.Bounds(); q.Desc && len(recs) > 0 && (s.dense || upTo > s.last) {
		recs[0].ID = min(upTo, s.last)
	}
	return recs, err
}

func (s *sparse) Count(ctx context.Context, f ledger.Filter) (int64, error) {
	above, upTo := f.Bounds()
	s.ids, s.asked = max(s.ids, min(upTo, s.last)-above), s.asked+1
	return s.Store.Count(ctx, f)
}

func (s *sparse) Ended(ctx context.Context, q ledger.EndedQuery) ([]ledger.Ended, error) {
	s.ended = max(s.ended, q.Limit)
	return s.Store.Ended(ctx, q)
}

// TestNoLargeQuery: after many ids without an item that matches, a count still reads a bounded number of ids at a time.
// Ids without any item are passed by soon, and so are items that an index leaves out. A reader with little time does
// not begin with many ended attempts.
func TestNoLargeQuery(t *testing.T) {
	var store *sparse
	var l *ledger.Ledger
	for _, last := range []int64{1 << 50, 1 << 22} {
		store = &sparse{Store: memory.New(memory.Options{}), last: last, dense: last < 1<<30}
		l = ledger.New(store, ledger.Options{})
		must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "a"}))
		ready := ledger.Filter{States: []ledger.State{ledger.StateReady}}
		n, whole, err := l.CountUpTo(t.Context(), ready, 0, time.Minute)
		if n != 1 || !whole || err != nil || store.ids == 0 || store.ids > 100_000 {
			t.Errorf("ids up to %d: %d items, all %t, %v, in queries of up to %d ids", last, n, whole, err, store.ids)
		}
	}
	store.asked = 0
	dead := ledger.Filter{States: []ledger.State{ledger.StateDead}}
	if _, whole, err := l.CountUpTo(t.Context(), dead, 0, time.Minute); !whole || err != nil || store.asked > 20 {
		t.Errorf("dead items among %d: all %t, %v, in %d queries", store.last, whole, err, store.asked)
	}
	if _, _, err := l.CountUpTo(t.Context(), ledger.Filter{Since: time.Now().Add(-time.Hour)}, 0,
		50*time.Millisecond); err != nil || store.ended == 0 || store.ended > 5000 {
		t.Errorf("%v after %d attempts", err, store.ended)
	}
}
