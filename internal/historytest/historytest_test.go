package historytest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/history"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/recorder"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
)

// record makes random calls of a ledger in memory, through a recorder, until all items are done.
func record(t *testing.T, seed uint64) *Run {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(t.TempDir(), "history")
	log, err := history.Open(path)
	must.OK(t, err)
	defer log.Close()
	clock := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	store := recorder.New(memory.New(memory.Options{Now: func() time.Time { return clock }}), log)
	l := ledger.New(store, ledger.Options{})
	ctx := t.Context()
	ok := func(err error) {
		t.Helper()
		must.OK(t, err)
	}
	ok(l.SetKind(ctx, "test", ledger.Kind{Name: "k", MaxLost: 1000, MaxFailures: 1000, MaxCrashes: 1000}))
	var held []*ledger.Lease
	for i := range 400 {
		clock = clock.Add(time.Duration(random.IntN(1000)) * time.Millisecond)
		switch n := random.IntN(10); {
		case n < 2 && i < 300:
			_, err := l.Add(ctx, ledger.NewItem{Kind: "k", Key: fmt.Sprint(random.IntN(30))})
			ok(err)
		case n < 5:
			got, err := l.Claim(ctx, ledger.Claim{Kind: "k", Agent: fmt.Sprint("agent ", random.IntN(3)), Limit: 1 +
				random.IntN(3), TTL: 5 * time.Second})
			ok(err)
			held = append(held, got...)
		case n < 6:
			_, err := l.Expire(ctx, 100)
			ok(err)
		case n < 7 && len(held) > 0:
			l.Extend(ctx, 5*time.Second, held[random.IntN(len(held))])
		case len(held) > 0:
			k := random.IntN(len(held))
			r := []ledger.Result{ledger.Done(nil), ledger.Release(), ledger.RetryAfter(time.Second,
				os.ErrInvalid)}[random.IntN(3)]
			l.Finish(ctx, ledger.Ending{Lease: held[k], Result: r}) // stale ones are refused
			held = slices.Delete(held, k, k+1)
		}
	}
	for range 1000 { // until all is done
		clock = clock.Add(10 * time.Second)
		_, err := l.Expire(ctx, 100)
		ok(err)
		_, err = l.Promote(ctx, 100)
		ok(err)
		got, err := l.Claim(ctx, ledger.Claim{Kind: "k", Agent: "last", Limit: 100})
		ok(err)
		for _, ls := range got {
			ok(l.Finish(ctx, ledger.Ending{Lease: ls, Result: ledger.Done(nil)})[0])
		}
		if n, err := l.Count(ctx, ledger.Filter{States: []ledger.State{ledger.StateDone}}); err == nil && n > 0 &&
			len(got) == 0 {
			break
		}
	}
	r := &Run{Steady: true}
	r.Lines, err = history.Read(path)
	ok(err)
	r.Items, err = store.Audit(ctx, 0, 1000)
	ok(err)
	return r
}

// judge returns what both checkers find.
func judge(t *testing.T, r *Run) (leases, linear []Violation) {
	t.Helper()
	linear, left := Linear(r, 10*time.Second)
	if left > 0 {
		t.Errorf("%d items are unclear", left)
	}
	return Leases(r), linear
}

// Both checkers find nothing in the histories of the store in memory.
func TestMemoryKeepsItsPromises(t *testing.T) {
	for seed := range uint64(20) {
		leases, linear := judge(t, record(t, seed))
		if len(leases)+len(linear) > 0 {
			t.Fatalf("seed %d: %v %v", seed, leases, linear)
		}
	}
}

// find returns the last item that fits, of the lines with a phase and an operation.
func find(t *testing.T, r *Run, phase, op string, fits func(history.Item) bool) *history.Item {
	t.Helper()
	for _, l := range slices.Backward(r.Lines) {
		if l.Phase != phase || l.Op != op {
			continue
		}
		if i := slices.IndexFunc(l.Items, fits); i >= 0 {
			return &l.Items[i]
		}
	}
	t.Fatal("the history has no such call")
	return nil
}

// anyItem fits every item.
func anyItem(history.Item) bool { return true }

// ended fits items that a call ended with an outcome.
func ended(outcome ledger.Outcome) func(history.Item) bool {
	return func(it history.Item) bool { return it.Outcome == string(outcome) }
}

// row returns an item of the rows.
func row(r *Run, id int64) *ledger.Audited {
	return &r.Items[slices.IndexFunc(r.Items, func(it ledger.Audited) bool { return it.ID == id })]
}

// Every falsified history is found by the checkers that the table names.
func TestLies(t *testing.T) {
	for _, c := range []struct {
		name           string
		lie            func(t *testing.T, r *Run)
		leases, linear bool
	}{
		{"a completion is lost after it was acknowledged", func(t *testing.T, r *Run) {
			it := row(r, find(t, r, history.End, history.OpComplete, anyItem).ID)
			it.Attempts = it.Attempts[:len(it.Attempts)-1]
		}, true, false},
		{"an item is gone", func(t *testing.T, r *Run) {
			id := find(t, r, history.Begin, history.OpUpdate, func(it history.Item) bool { return it.Identity != "" }).ID
			r.Items = slices.DeleteFunc(r.Items, func(it ledger.Audited) bool { return it.ID == id })
		}, true, false},
		{"a lease is taken before it ran out", func(t *testing.T, r *Run) {
			lost := find(t, r, history.Begin, history.OpUpdate, ended(ledger.OutcomeLost))
			it := row(r, lost.ID)
			for i := range it.Attempts {
				if a := &it.Attempts[i]; a.Attempt == lost.Attempt {
					a.FinishedAt = a.LeasedAt.Add(time.Second)
					lost.Now = a.FinishedAt.UnixMicro()
				}
			}
		}, true, true},
		{"a lease is taken from a process as gone, and it calls later", func(t *testing.T, r *Run) {
			lost := find(t, r, history.Begin, history.OpUpdate, ended(ledger.OutcomeLost))
			lost.Code = ledger.CodeGone
			a := &row(r, lost.ID).Attempts[lost.Attempt-1]
			a.Code, a.Agent = ledger.CodeGone, "host/4711/1"
			r.Lines = append(r.Lines, history.Line{Process: "4711@1", Phase: history.Mark, Op: history.OpPoint,
				At: (a.FinishedAt.UnixMicro() - r.Offset + 2*slack) * 1000})
		}, true, false},
		{"an attempt number is given twice", func(t *testing.T, r *Run) {
			again := find(t, r, history.End, history.OpClaim, func(it history.Item) bool { return it.Attempt > 1 })
			row(r, again.ID).Attempts[again.Attempt-1].Attempt--
			again.Attempt--
		}, true, true},
		{"a stale completion is taken", func(t *testing.T, r *Run) {
			released := map[int64]string{} // the lease of each item that was given back
			for _, l := range r.Lines {
				for _, it := range l.Items {
					if l.Phase == history.Begin && l.Op == history.OpUpdate && it.Outcome == string(ledger.OutcomeReleased) {
						released[it.ID] = it.Lock
					}
				}
			}
			done := find(t, r, history.End, history.OpComplete, func(it history.Item) bool { return released[it.ID] != "" })
			done.Lock = released[done.ID]
		}, true, true},
		{"two completions of a round", func(t *testing.T, r *Run) {
			it := row(r, find(t, r, history.End, history.OpComplete, anyItem).ID)
			last := it.Attempts[len(it.Attempts)-1]
			last.Attempt++
			it.Attempts = append(it.Attempts, last)
		}, true, false},
		{"a result that is recorded is refused", func(t *testing.T, r *Run) {
			done := find(t, r, history.End, history.OpComplete, anyItem)
			r.Lines = append(r.Lines, history.Line{Phase: history.Mark, Op: history.OpRefused, At: never,
				Items: []history.Item{*done}})
		}, true, false},
		{"an item is claimed while it is leased", func(t *testing.T, r *Run) {
			lost := find(t, r, history.Begin, history.OpUpdate, ended(ledger.OutcomeLost))
			r.Lines = slices.DeleteFunc(r.Lines, func(l history.Line) bool {
				return l.Op == history.OpUpdate && slices.ContainsFunc(l.Items, func(it history.Item) bool {
					return it.ID == lost.ID && it.Lock == lost.Lock
				})
			})
			it := row(r, lost.ID)
			it.Attempts[lost.Attempt-1].FinishedAt = it.Attempts[lost.Attempt].LeasedAt.Add(time.Second)
		}, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := record(t, 7)
			c.lie(t, r)
			leases, linear := judge(t, r)
			if len(leases) > 0 != c.leases || len(linear) > 0 != c.linear {
				t.Errorf("by leases %v, linear %v", leases, linear)
			}
		})
	}
}

// A drain need not wait for an item that a person holds. An item that a program holds breaks its promise. The attempt
// of either has no row yet, and its claim is right.
func TestHeldAtTheEnd(t *testing.T) {
	for _, c := range []struct {
		agent string
		want  []string
	}{{"ann", nil}, {"host/1/a", []string{"S10"}}} {
		path := filepath.Join(t.TempDir(), "history")
		log, err := history.Open(path)
		must.OK(t, err)
		defer log.Close()
		store := recorder.New(memory.New(memory.Options{}), log)
		l := ledger.New(store, ledger.Options{})
		must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "x"}))
		if ls, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: c.agent, Limit: 1}); err != nil || len(ls) != 1 {
			t.Fatal(ls, err)
		}
		r := &Run{Steady: true, Offset: time.Now().UnixMicro() - history.Now()/1000}
		begin := history.Now()
		r.Drains = []Drain{{Kinds: []string{"k"}, Called: begin + int64(time.Second), Returned: begin + 2*int64(time.Second)}}
		r.Lines, err = history.Read(path)
		must.OK(t, err)
		r.Items, err = store.Audit(t.Context(), 0, 10)
		must.OK(t, err)
		var rules []string
		for _, v := range slices.Concat(Leases(r), Drains(r)) {
			rules = append(rules, v.Rule)
		}
		if !slices.Equal(rules, c.want) {
			t.Errorf("held by %s: %v, want %v", c.agent, rules, c.want)
		}
	}
}
