package sqlite

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// plan returns the steps by which SQLite would run a statement. With statistics they depend on the arguments.
func plan(t *testing.T, s *Store, query string, args ...any) (steps []string) {
	t.Helper()
	err := s.read(t.Context(), false, func(r session) error {
		return r.query("EXPLAIN QUERY PLAN "+query, func(r row) error {
			steps = append(steps, r.text(3))
			return nil
		}, args...)
	})
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return steps
}

// everything runs each part of the store at least once.
func everything(t *testing.T, s *Store, clock *time.Time) {
	t.Helper()
	ctx, l := t.Context(), ledger.New(s, ledger.Options{})
	ok := func(err error) {
		t.Helper()
		must.OK(t, err)
	}
	add := func(items ...ledger.NewItem) {
		t.Helper()
		_, err := l.Add(ctx, items...)
		ok(err)
	}
	var items []ledger.NewItem
	for i := range 120 {
		items = append(items, ledger.NewItem{Kind: "k", Key: fmt.Sprint(i), Priority: int16(i%5 - 2)})
	}
	add(items...)
	add(append(items[:5], ledger.NewItem{Kind: "k", Key: "daily", Every: "day", Priority: -2}, ledger.NewItem{Kind: "k",
		Key: "later", Due: clock.Add(time.Hour)})...)
	add(ledger.NewItem{Kind: "k", Key: "1", Fingerprint: "new"})
	ok(l.SetKind(ctx, "a", ledger.Kind{Name: "k", Keep: time.Minute}))
	ok(l.Beat(ctx, ledger.Agent{Name: "a"}, time.Minute))
	var leases []*ledger.Lease
	for _, c := range []ledger.Claim{{Limit: 40}, {Limit: 50, Resume: true},
		{Limit: 50, Shard: scheduler.Shard{Index: 1, Count: 3}}} {
		c.Kind, c.Agent = "k", "a"
		got, err := l.Claim(ctx, c)
		ok(err)
		leases = append(leases, got...)
	}
	ok(errors.Join(l.Renew(ctx, time.Minute, leases[:5]...)...))
	ok(errors.Join(l.Start(ctx, time.Minute, leases[:5]...)...))
	var endings []ledger.Ending
	for i, ls := range leases[:30] {
		r := []ledger.Result{ledger.Done(nil), ledger.Done([]byte("o")), ledger.Permanent(errors.New("e")),
			ledger.Doubt(errors.New("e")), ledger.Snooze(time.Second, ""),
			ledger.Done(nil, ledger.NewItem{Kind: "child", Key: fmt.Sprint(i)})}[i%6]
		endings = append(endings, ledger.Ending{Lease: ls, Result: r})
	}
	ok(errors.Join(l.Finish(ctx, endings...)...))
	ok(l.Finish(ctx, endings[0])[0])
	if err := l.Renew(ctx, time.Minute, leases[0])[0]; !errors.Is(err, ledger.ErrLeaseLost) {
		t.Fatal(err)
	}
	*clock = clock.Add(2 * time.Hour)
	n, err := l.Expire(ctx, 100)
	if ok(err); n == 0 {
		t.Fatal("nothing expired")
	}
	_, err = l.Promote(ctx, 100)
	ok(err)
	n, err = l.Prune(ctx, 100)
	if ok(err); n == 0 {
		t.Fatal("nothing was pruned")
	}
	ok(l.Define(ctx, ledger.Agent{Name: "a"}, "k", "p@1+a", "{}"))
	_, err = l.Retry(ctx, "a", ledger.Filter{States: []ledger.State{ledger.StateDead}})
	ok(err)
	_, _, err = l.Forget(ctx, "a", ledger.IDs(leases[0].ID))
	ok(err)
	_, err = l.Counts(ctx, *clock)
	ok(err)
	_, err = l.Why(ctx, leases[3].ID)
	ok(err)
	_, err = l.Attempts(ctx, leases[3].ID)
	ok(err)
	_, err = l.LastOutput(ctx, leases[3].ID)
	ok(err)
	_, err = l.Find(ctx, "k", "", "3")
	ok(err)
	for _, f := range []ledger.Filter{
		{States: []ledger.State{ledger.StateDone}}, {States: []ledger.State{ledger.StateDead}, Kinds: []string{"k"}},
		{States: []ledger.State{ledger.StateDoubt, ledger.StateDead}}, {States: []ledger.State{ledger.StateReady},
			Kinds: []string{"k"}},
		ledger.Filter{States: []ledger.State{ledger.StateDead, ledger.StateReady}}.And(ledger.Filter{
			States: []ledger.State{ledger.StateDead}}).And(ledger.Filter{Key: "x"}),
		{Kinds: []string{"k"}, Prefix: "x"}, {States: []ledger.State{ledger.StateLeased}, Agents: []string{"a"}},
	} {
		_, err = l.Recent(ctx, f, 10)
		ok(err)
		_, err = s.Records(ctx, ledger.RecordQuery{Filter: f, Limit: 10, Output: true})
		ok(err)
		_, err = s.Count(ctx, ledger.Filter{Key: "3"})
		ok(err)
	}
	for v, err := range l.Verify(ctx) {
		t.Error(v, err)
	}
}

// No statement reads the whole of a table that grows, except statements about all of its rows.
func TestPlans(t *testing.T) {
	clock := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	s := testStore(t, Options{Now: func() time.Time { return clock }})
	ran := measure(t, s)
	everything(t, s, &clock)
	seen := map[string]bool{}
	for _, m := range ran() {
		seen[m.query] = true
	}
	grows := regexp.MustCompile(`^SCAN (i|b|a|n|o|ledger_items|ledger_backlog|ledger_attempts)\b`)
	for _, query := range slices.Sorted(maps.Keys(seen)) {
		if word, _, _ := strings.Cut(query, " "); !slices.Contains([]string{"SELECT", "INSERT", "UPDATE", "DELETE"}, word) ||
			strings.Contains(query, "?,?),(") {
			continue
		}
		steps := plan(t, s, query, make([]any, 30)...)
		for _, step := range steps {
			recent := step == "SCAN b" && strings.Contains(query, "b.attempt > 0") // unfinished items have no order by end
			if grows.MatchString(step) && !strings.Contains(step, "INDEX") && !recent {
				t.Errorf("%s\n%s", query, strings.Join(steps, "\n"))
			}
		}
	}
}
