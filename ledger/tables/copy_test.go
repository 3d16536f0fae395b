package tables_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/locks"
	"github.com/ledgerd/ledgerd/ledger/tables"
)

// everyWay runs a test for each pair of databases.
func everyWay(t *testing.T, test func(t *testing.T, from, to place)) { ways(t, true, test) }

// across runs a test for each pair of different databases.
func across(t *testing.T, test func(t *testing.T, from, to place)) { ways(t, false, test) }

func ways(t *testing.T, same bool, test func(t *testing.T, from, to place)) {
	t.Parallel()
	places := map[string]func(testing.TB) place{"sqlite": sqlitePlace, "postgres": postgresPlace}
	for a, from := range places {
		for b, to := range places {
			if a == b && !same {
				continue
			}
			t.Run(a+" to "+b, func(t *testing.T) {
				t.Parallel()
				test(t, from(t), to(t))
			})
		}
	}
}

// fill gives a ledger items in every state, with all that is unusual about values.
func fill(t testing.TB, s store) *ledger.Ledger {
	t.Helper()
	ctx, l := t.Context(), ledger.New(s, ledger.Options{})
	ok := func(errs ...error) {
		t.Helper()
		for _, err := range errs {
			must.OK(t, err)
		}
	}
	ok(l.SetKind(ctx, "operator:ann", ledger.Kind{Name: "mail", OnLost: ledger.OnLostDoubt, Keep: 36 * time.Hour}))
	var items []ledger.NewItem
	for i := range 30 {
		items = append(items, ledger.NewItem{Kind: "mail", Scope: []string{"", "spring"}[i%2],
			Key: fmt.Sprintf("/ümlaut/%02d", i), Payload: []byte{0, 0xff, byte(i)}, Priority: int16(i%5 - 2),
			ShardKey: []string{"", "host"}[i%2]})
	}
	items = append(items, ledger.NewItem{Kind: "daily", Key: "report", Every: "day", Zone: "Europe/Berlin"},
		ledger.NewItem{Kind: "daily", Key: "later", Due: time.Now().Add(time.Hour)},
		ledger.NewItem{Kind: "daily", Key: "none"}, ledger.NewItem{Kind: "daily", Key: "<a>&ü"})
	_, err := l.Add(ctx, items...)
	ok(err)
	leases, err := l.Claim(ctx, ledger.Claim{Kind: "mail", Agent: "ann", Limit: 12})
	ok(err)
	outcomes := []ledger.Result{{Outcome: ledger.OutcomeDone, Output: []byte(`{"ok":true}`)},
		{Outcome: ledger.OutcomeSkipped}, {Outcome: ledger.OutcomeUnknown}, {Outcome: ledger.OutcomeReleased},
		{Outcome: ledger.OutcomeFailed, Code: "smtp_550", Error: "no such user", Log: "line\nline"}}
	for i, ls := range leases {
		ok(l.Finish(ctx, ledger.Ending{Lease: ls, Result: outcomes[i%len(outcomes)]})...)
	}
	ok(l.Beat(ctx, ledger.Agent{Name: "gone/1", Host: "gone", PID: 1, Version: "1", StartedAt: time.Now()}, time.Second))
	_, err = l.Cancel(ctx, "operator:ann", ledger.Filter{Key: "none"})
	ok(err)
	// The rules do not write this, but another version may have it: empty bytes are not NULL.
	ok(s.WriteTables(ctx, func(w tables.Writer) error {
		items := tables.Table{Name: "ledger_items", Columns: []string{"id", "kind", "scope", "key", "slot", "payload",
			"source", "created_at"}}
		attempts := tables.Table{Name: "ledger_attempts", Columns: []string{"item_id", "attempt", "epoch", "outcome", "final",
			"kind", "agent", "error", "output", "finished_at"}}
		at := int64(1763632800123457)
		return errors.Join(w.Insert(items, []tables.Row{{int64(1000), "mail", "", "empty", int64(540), []byte{}, "", at}}),
			w.SetSequence(items, 1000),
			w.Insert(attempts, []tables.Row{{int64(1000), int64(1), int64(1), int64(0), int64(1), "mail", "ann", "", []byte{},
				at + 1}}))
	}))
	// A lock that is given back and kept for a while, and one that has been forgotten, with its number.
	for name, keep := range map[string]time.Duration{"nightly": time.Hour, "once": 0} {
		ok(locks.New(l).Do(ctx, name, locks.Options{AtLeast: keep}, func(context.Context, *locks.Lock) error {
			return nil
		}))
	}
	// The greatest number ever given belongs to a row that is gone.
	ids, err := l.Add(ctx, ledger.NewItem{Kind: "mail", Key: "forgotten"})
	ok(err)
	_, err = l.Cancel(ctx, "operator:ann", ledger.IDs(ids[0].ID))
	ok(err)
	forgotten, _, err := l.Forget(ctx, "operator:ann", ledger.IDs(ids[0].ID))
	ok(err)
	if forgotten != 1 || ids[0].ID != 1001 {
		t.Fatalf("forgotten %d, %+v", forgotten, ids)
	}
	return l
}

func TestCopy(t *testing.T) {
	everyWay(t, func(t *testing.T, from, to place) {
		s, target := mustOpen(t, from), mustOpen(t, to)
		restored, _, err := fill(t, s).Restored(t.Context(), "operator:ann")
		must.OK(t, err)
		before := dump(t, s)
		progress := map[string]int64{}
		all, err := tables.Copy(t.Context(), s, target, tables.Options{Progress: func(table string, n int64) {
			progress[table] = n
		}})
		must.OK(t, err)
		for _, c := range all {
			if n := int64(len(before[c.Table])); c.Rows != n || progress[c.Table] != n {
				t.Errorf("%+v, progress %d; there are %d rows", c, progress[c.Table], n)
			}
		}
		if d := cmp.Diff(before, dump(t, target)); d != "" {
			t.Errorf("the target differs:\n%s", d)
		}
		if d := cmp.Diff(before, dump(t, s)); d != "" {
			t.Errorf("the source was changed:\n%s", d)
		}
		ids := append(from.sql(`SELECT v FROM {{S}}.ledger_meta WHERE k = 'ledger_id'`),
			to.sql(`SELECT v FROM {{S}}.ledger_meta WHERE k = 'ledger_id'`)...)
		if len(ids) != 2 || ids[0] == ids[1] {
			t.Errorf("ids of source and target: %q", ids)
		}
		// It is a ledger like any other, and gives no number twice.
		copied := mustOpen(t, to)
		again := ledger.New(copied, ledger.Options{})
		if !slices.Equal(copied.Opened().Floors, restored.Floors) {
			t.Errorf("floors of the copy: %v, not %v", copied.Opened().Floors, restored.Floors)
		}
		for v, err := range again.Verify(t.Context()) {
			t.Errorf("%+v %v", v, err)
		}
		added, err := again.Add(t.Context(), ledger.NewItem{Kind: "mail", Key: "new"})
		if err != nil || added[0].ID <= 1001 {
			t.Errorf("the id of a new item is %+v, %v; 1001 was given before", added, err)
		}
		fence := int64(0)
		if err := locks.New(again).Do(t.Context(), "new", locks.Options{}, func(_ context.Context, l *locks.Lock) error {
			fence = l.Fence
			return nil
		}); err != nil || fence <= 2 {
			t.Errorf("a new lock has fence %d, %v; 2 was given before", fence, err)
		}
		if err := again.SetKind(t.Context(), "operator:ann", ledger.Kind{Name: "new"}); err != nil { // into the journal
			t.Error(err)
		}
	})
}

// After an interruption the target is empty, and the same call copies all.
func TestCopyIsInterrupted(t *testing.T) {
	across(t, func(t *testing.T, from, to place) {
		s, target := mustOpen(t, from), mustOpen(t, to)
		fill(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, err := tables.Copy(ctx, s, target, tables.Options{Progress: func(table string, _ int64) {
			if table == "ledger_attempts" {
				cancel()
			}
		}})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("interrupted: %v", err)
		}
		if d := cmp.Diff(map[string][]map[string]any{}, dump(t, target)); d != "" {
			t.Errorf("the target is not empty:\n%s", d)
		}
		must.Do(t)(tables.Copy(t.Context(), s, target, tables.Options{}))
		if d := cmp.Diff(dump(t, s), dump(t, target)); d != "" {
			t.Errorf("the target differs:\n%s", d)
		}
	})
}

func TestCopyRefuses(t *testing.T) {
	across(t, func(t *testing.T, from, to place) {
		s, target := mustOpen(t, from), mustOpen(t, to)
		l := ledger.New(target, ledger.Options{})
		must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "x"}))
		before := dump(t, target)
		if _, err := tables.Copy(t.Context(), s, target, tables.Options{}); !errors.Is(err, ledger.ErrConflict) ||
			!strings.Contains(err.Error(), "not empty") {
			t.Errorf("a target that is not empty: %v", err)
		}
		if d := cmp.Diff(before, dump(t, target)); d != "" {
			t.Errorf("it was changed:\n%s", d)
		}
		if _, err := tables.Copy(t.Context(), s, s, tables.Options{}); !errors.Is(err, ledger.ErrConflict) {
			t.Errorf("a copy onto itself: %v", err)
		}
	})
}

func TestQuiet(t *testing.T) {
	for _, p := range []place{sqlitePlace(t), postgresPlace(t)} {
		l := ledger.New(mustOpen(t, p), ledger.Options{})
		ctx := t.Context()
		if err := tables.Quiet(ctx, l); err != nil {
			t.Errorf("an empty ledger: %v", err)
		}
		must.OK(t, l.Beat(ctx, ledger.Agent{Name: "host/1", Host: "host", PID: 1, Version: "1", StartedAt: time.Now()},
			time.Minute))
		var ends []ledger.Ending
		for _, agent := range []string{"gus", "fay", "eve", "dan", "cat", "ben", "ann"} {
			must.Do(t)(l.Add(ctx, ledger.NewItem{Kind: "k", Key: agent}))
			leases, err := l.Claim(ctx, ledger.Claim{Kind: "k", Agent: agent, Limit: 1})
			must.OK(t, err)
			ends = append(ends, ledger.Ending{Lease: leases[0], Result: ledger.Done(nil)})
		}
		_, lock, err := locks.New(l).Acquire(ctx, "nightly", locks.Options{Holder: "bob"})
		must.OK(t, err)
		busy := new(tables.BusyError)
		if err := tables.Quiet(ctx, l); !errors.As(err, &busy) ||
			err.Error() != "agents at work: host/1; 7 leased, by ann, ben, cat, dan, eve and 2 more; locks held: nightly by bob" {
			t.Errorf("a ledger at work: %v", err)
		}
		if err := tables.WaitQuiet(ctx, l, 10*time.Millisecond); !errors.As(err, &busy) {
			t.Errorf("waiting in vain: %v", err)
		}
		must.OK(t, locks.New(l).Release(ctx, lock))
		must.OK(t, errors.Join(l.Finish(ctx, ends...)...))
		must.OK(t, l.Beat(ctx, ledger.Agent{Name: "host/1"}, 0))
		if err := tables.WaitQuiet(ctx, l, time.Minute); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	}
}

// TestCopyOfMany copies more rows than a batch holds, there and back.
func TestCopyOfMany(t *testing.T) {
	first, second, third := mustOpen(t, sqlitePlace(t)), mustOpen(t, postgresPlace(t)), mustOpen(t, sqlitePlace(t))
	items := make([]ledger.NewItem, 6_000)
	for i := range items {
		items[i] = ledger.NewItem{Kind: "k", Key: fmt.Sprint(i), Payload: fmt.Appendf(nil, "payload %d", i)}
	}
	must.Do(t)(ledger.New(first, ledger.Options{}).Add(t.Context(), items...))
	must.Do(t)(tables.Copy(t.Context(), first, second, tables.Options{}))
	must.Do(t)(tables.Copy(t.Context(), second, third, tables.Options{}))
	if before, after := dump(t, first), dump(t, third); !reflect.DeepEqual(before, after) {
		t.Errorf("there are other rows afterwards:\n%s", cmp.Diff(before, after))
	}
}
