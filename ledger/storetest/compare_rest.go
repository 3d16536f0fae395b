package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/filter"
	"github.com/ledgerd/ledgerd/ledger/order"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// This file compares random acts of operators, the passage of time, and readers.

func (m *machine) filter(t *rapid.T) ledger.Filter {
	var f ledger.Filter
	if rapid.Bool().Draw(t, "by kind") {
		f.Kinds = []string{kindNames.Draw(t, "kind")}
	}
	if rapid.Bool().Draw(t, "by state") {
		f.States = rapid.SliceOfN(rapid.SampledFrom(ledger.States), 1, 2).Draw(t, "states")
	}
	if rapid.Bool().Draw(t, "by round") {
		f.Rounds = rapid.SliceOfN(rapid.SampledFrom(ledger.RoundConditions), 1, 2).Draw(t, "rounds")
	}
	switch rapid.IntRange(0, 18).Draw(t, "by") {
	case 0:
		f.Key = rapid.SampledFrom([]string{"1", "é%_"}).Draw(t, "key")
	case 1:
		f.Codes = []string{"c"}
	case 2:
		f.KeyHas = "%_"
	case 3:
		f.Since = m.clock.now().Add(-time.Minute)
	case 4:
		f.Agents = []string{"x"}
	case 5:
		f.ErrorHas = "e"
	case 6:
		f.Prefix = rapid.SampledFrom([]string{"é%", "5"}).Draw(t, "prefix")
	case 7:
		f.Scopes = []string{""}
	case 8:
		f.Until = m.clock.now().Add(-time.Minute + 300)
	case 9:
		f.Priorities = []int16{rapid.SampledFrom([]int16{-2, 0, 1}).Draw(t, "priority"), 0}
	case 10:
		f.AddedFrom, f.AddedTo = m.clock.now().Add(-time.Hour), m.clock.now().Add(-time.Second+300)
	case 11:
		f.Outcomes = rapid.SliceOfN(rapid.SampledFrom(ledger.Outcomes), 1, 3).Draw(t, "outcomes")
	case 12, 13:
		where := rapid.SampledFrom([]string{"payload.n:1,2", "payload.n.m~1", "output.status:404", "output.status>400",
			"output.text~é", "output.text:a", "payload.n<2"}).Draw(t, "field")
		parsed, err := filter.Parse(where, m.clock.now())
		must.OK(t, err)
		f = f.And(parsed)
	case 14:
		f.FailingFrom, f.FailingTo = m.clock.now().Add(-time.Hour), m.clock.now().Add(-time.Second+300)
	case 15:
		f.RecoveredFrom = m.clock.now().Add(-time.Hour)
	case 16:
		f.ShardKeys = []string{"a", "1"}
	case 17:
		f.DueFrom, f.DueTo = m.clock.now().Add(-time.Hour), m.clock.now().Add(300)
	}
	if rapid.IntRange(0, 3).Draw(t, "also") == 0 {
		f = f.And(m.filter(t))
	}
	return f
}

func (m *machine) act(t *rapid.T) {
	f := m.filter(t)
	name := rapid.SampledFrom([]string{"retry", "place", "put off", "decide all", "reopen", "cancel", "release",
		"forget"}).Draw(t, "act")
	seconds := rapid.SampledFrom([]int{-1, 30, 4000, 400_000}).Draw(t, "until")
	until := m.clock.now().Add(time.Duration(seconds) * time.Second)
	verdict := verdicts.Draw(t, "verdict")
	got := both(m, t, name, func(_ int, l *ledger.Ledger) ([2]int64, error) {
		ctx := m.tb.Context()
		var n, left int64
		var err error
		switch name {
		case "retry":
			n, err = l.Retry(ctx, "op", f)
		case "place":
			n, err = l.Place(ctx, "op", f, bounds.MinPriority, ledger.ThisRound())
		case "put off":
			n, err = l.PutOff(ctx, "op", f, until)
		case "decide all":
			n, err = l.DecideAll(ctx, "op", f, ledger.Result{Outcome: verdict})
		case "reopen":
			n, err = l.Reopen(ctx, "op", f)
		case "cancel":
			n, err = l.Cancel(ctx, "op", f, ledger.WithReason("why"))
		case "release":
			n, err = l.ForceRelease(ctx, "op", f)
		case "forget":
			n, left, err = l.Forget(ctx, "op", f)
		}
		return [2]int64{n, left}, err
	})
	same(t, name, got)
}

var verdicts = rapid.SampledFrom([]ledger.Outcome{ledger.OutcomeDone, ledger.OutcomeSkipped,
	ledger.OutcomeCancelled, ledger.OutcomeFailed})

func (m *machine) decide(t *rapid.T) {
	pair := m.some(t)[0]
	r := ledger.Result{Outcome: verdicts.Draw(t, "verdict")}
	both(m, t, "decide", func(i int, l *ledger.Ledger) (int, error) {
		return 0, l.Decide(m.tb.Context(), pair[i].ID, "op", r)
	})
}

// policy sets the whole policy of a kind, or changes a part of it.
func (m *machine) policy(t *rapid.T) {
	name := kindNames.Draw(t, "kind")
	if rapid.IntRange(0, 3).Draw(t, "edits") == 0 {
		lost := rapid.IntRange(0, 4).Draw(t, "max lost")
		got := both(m, t, "edit", func(_ int, l *ledger.Ledger) (ledger.Kind, error) {
			return l.EditKind(m.tb.Context(), "op", name, func(k *ledger.Kind, known bool) {
				if k.MaxLost = lost; !known {
					k.MaxCrashes = 7
				}
			})
		})
		same(t, "edited", got)
		return
	}
	k := ledger.Kind{Name: name,
		OnLost:      rapid.SampledFrom([]ledger.OnLost{"", ledger.OnLostRepeat, ledger.OnLostDoubt}).Draw(t, "on lost"),
		MaxFailures: rapid.IntRange(0, 3).Draw(t, "max failures"),
		MaxLost:     rapid.IntRange(0, 4).Draw(t, "max lost"),
		MaxCrashes:  rapid.IntRange(0, 2).Draw(t, "max crashes"),
		Paused:      rapid.IntRange(0, 5).Draw(t, "paused") == 0,
		Keep:        time.Duration(rapid.IntRange(0, 2).Draw(t, "keep")) * time.Minute,
		Limits:      scheduler.Limits{MaxRunning: rapid.SampledFrom([]int{0, 0, 0, 2}).Draw(t, "max running")}}
	both(m, t, "policy", func(_ int, l *ledger.Ledger) (int, error) { return 0, l.SetKind(m.tb.Context(), "op", k) })
}

var agentNames = rapid.SampledFrom([]string{"x", "y", "z"})

// define runs without faults: a failed Define deletes its heartbeat, and with it the StartedAt of the program.
func (m *machine) define(t *rapid.T) {
	me := ledger.Agent{Name: agentNames.Draw(t, "agent"), Kinds: works(t)}
	name := kindNames.Draw(t, "kind")
	definition := rapid.SampledFrom([]string{"", "p@1+a", "p@2+a", "p@1+b"}).Draw(t, "definition")
	config := rapid.SampledFrom([]string{"", `{"a":1}`, `{"a":2}`}).Draw(t, "config")
	bothUnder(m, t, sound, "define", func(_ int, l *ledger.Ledger) (int, error) {
		return 0, l.Define(m.tb.Context(), me, name, definition, config)
	})
}

func works(t *rapid.T) map[string]string {
	return rapid.MapOfN(kindNames, rapid.SampledFrom([]string{"p@1+a", "p@1+b"}), 0, 2).Draw(t, "works")
}

func (m *machine) beat(t *rapid.T) {
	ttl := time.Duration(rapid.IntRange(0, 100).Draw(t, "ttl")) * time.Second
	a := ledger.Agent{Name: agentNames.Draw(t, "agent"), Host: "h", PID: 7, Version: "v",
		Process: rapid.SampledFrom([]string{"", goneProcess}).Draw(t, "process"),
		Kinds:   works(t), Stalled: map[string]time.Time{}}
	for kind := range a.Kinds {
		if rapid.Bool().Draw(t, "stalled") {
			a.Stalled[kind] = m.clock.now().Add(time.Minute)
		}
	}
	both(m, t, "beat", func(_ int, l *ledger.Ledger) (int, error) { return 0, l.Beat(m.tb.Context(), a, ttl) })
}

func (m *machine) tick(t *rapid.T) {
	seconds := rapid.SampledFrom([]int{1, 30, 61, 600, 4000, 400_000, -2}).Draw(t, "seconds")
	m.clock.advance(time.Duration(seconds) * time.Second)
}

// back sets the clock back, as the correction of a wrong clock does.
func (m *machine) back(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "rarely") > 0 {
		t.Skip("the clock goes on")
	}
	m.clock.advance(-time.Duration(rapid.SampledFrom([]int{30, 600, 4000, 400_000}).Draw(t, "seconds")) * time.Second)
	if m.place.Lags {
		m.restart(t)
	}
}

func (m *machine) expire(t *rapid.T) {
	expired := both(m, t, "expire", func(_ int, l *ledger.Ledger) (int, error) { return l.Expire(m.tb.Context(), 100) })
	same(t, "expired", expired)
}

func (m *machine) gone(t *rapid.T) {
	expired := both(m, t, "gone", func(_ int, l *ledger.Ledger) (int, error) { return l.ExpireGone(m.tb.Context()) })
	same(t, "expired", expired)
}

// restored runs rarely, so that the attempts of most histories have no gaps. It runs without faults: a Postgres store
// first asks for its home outside of the transaction, and a fault that strikes this question counts as landed.
func (m *machine) restored(t *rapid.T) {
	if rapid.IntRange(0, 7).Draw(t, "restores") > 0 {
		return
	}
	got := bothUnder(m, t, sound, "restored", func(_ int, l *ledger.Ledger) (ledger.Schema, error) {
		done, lost, err := l.Restored(m.tb.Context(), "op")
		done.Have = int(lost)
		return done, err
	})
	same(t, "restored", got)
}

func (m *machine) promote(t *rapid.T) {
	next := both(m, t, "promote", func(_ int, l *ledger.Ledger) (time.Time, error) {
		return l.Promote(m.tb.Context(), 100)
	})
	same(t, "next due", next)
}

// prune runs in several transactions, so a repeated call returns a smaller count.
func (m *machine) prune(t *rapid.T) {
	got := both(m, t, "prune", func(_ int, l *ledger.Ledger) (int, error) { return l.Prune(m.tb.Context(), 100) })
	if !m.repeated {
		same(t, "pruned", got)
	}
}

// filters compares the results of readers.
func (m *machine) filters(t *rapid.T) {
	f := m.filter(t)
	for _, w := range []ledger.Walk{{Desc: true, Output: true}, {Order: order.Ended}, {Order: order.Ended, Desc: true},
		{Order: order.Due, Top: 1000}, {Order: order.Took, Desc: true, Top: 3}} {
		var got [2][]string
		for i, l := range m.l {
			w := w
			w.Filter = f
			for it, err := range l.Walk(m.tb.Context(), &w) {
				must.OK(t, err)
				got[i] = append(got[i], fmt.Sprintf("%+v", plainItem(it)))
			}
			if w.Order == order.Ended {
				slices.Sort(got[i]) // the order of attempts that ended at the same instant is not defined
			}
		}
		same(t, fmt.Sprintf("walk %+v", w), got)
	}
	n := both(m, t, "count", func(_ int, l *ledger.Ledger) (int64, error) { return l.Count(m.tb.Context(), f) })
	same(t, "count", n)
	by := rapid.SampledFrom([]string{"kind", "scope", "n", "n.m"}).Draw(t, "groups by")
	within := rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "for")
	groups := both(m, t, "groups", func(_ int, l *ledger.Ledger) ([]stats.Group, error) {
		groups, whole, err := l.Groups(m.tb.Context(), f, by, within)
		if err == nil && !whole {
			t.Error("not all were counted in an hour")
		}
		return groups, err
	})
	alike(t, "groups by "+by, groups)
	var listed [2][]ledger.Item
	ids := m.ids(t)
	after := rapid.IntRange(0, len(ids[0])).Draw(t, "after")
	for i, l := range m.l {
		from := int64(0)
		if after > 0 {
			from = ids[i][after-1]
		}
		for it, err := range l.List(m.tb.Context(), f, from) {
			must.OK(t, err)
			listed[i] = append(listed[i], plainItem(it))
		}
	}
	same(t, "list", listed)
}

// plainItem returns an item without what differs between two ledgers.
func plainItem(it ledger.Item) ledger.Item {
	it.ID = 0
	if it.Scope == childScope {
		it.Source = ""
	}
	return it
}

// items compares the answers about one item.
func (m *machine) items(t *rapid.T) {
	ids := m.ids(t)
	nth := rapid.IntRange(0, len(ids[0])).Draw(t, "item")
	id := func(i int) int64 {
		if nth == len(ids[0]) {
			return 1 << 40
		}
		return ids[i][nth]
	}
	got := both(m, t, "get", func(i int, l *ledger.Ledger) (ledger.Item, error) { return l.Get(m.tb.Context(), id(i)) })
	found := both(m, t, "find", func(i int, l *ledger.Ledger) (ledger.Item, error) {
		return l.Find(m.tb.Context(), got[i].Kind, got[i].Scope, got[i].Key)
	})
	same(t, "found", [2]ledger.Item{plainItem(found[0]), plainItem(found[1])})
	same(t, "got and found", [2]ledger.Item{got[1], found[1]})
	known := both(m, t, "known", func(i int, l *ledger.Ledger) ([]bool, error) {
		return l.Known(m.tb.Context(), ledger.Identity{Kind: got[i].Kind, Scope: got[i].Scope, Key: got[i].Key},
			ledger.Identity{Kind: "b", Key: "unclaimed"})
	})
	same(t, "known", known)
	why := both(m, t, "why", func(i int, l *ledger.Ledger) (ledger.Reason, error) { return l.Why(m.tb.Context(), id(i)) })
	for i := range why {
		for k := range why[i].Acts {
			why[i].Acts[k].Item = 0 // each ledger has its own ids
		}
	}
	same(t, "why", why)
	m.attempts(t, "attempts", func(i int, l *ledger.Ledger) ([]ledger.Attempt, error) {
		return l.Attempts(m.tb.Context(), id(i))
	})
	before := rapid.Int64Range(0, 4).Draw(t, "before")
	m.attempts(t, "attempts before", func(i int, l *ledger.Ledger) ([]ledger.Attempt, error) {
		return l.AttemptsBefore(m.tb.Context(), id(i), before, 2)
	})
	outputs := both(m, t, "last output", func(i int, l *ledger.Ledger) ([]byte, error) {
		return l.LastOutput(m.tb.Context(), id(i))
	})
	alike(t, "last output", outputs)
}

// attempts compares the attempts that a call returns.
func (m *machine) attempts(t *rapid.T, what string, call func(i int, l *ledger.Ledger) ([]ledger.Attempt, error)) {
	got := both(m, t, what, call)
	for i := range got {
		for k := range got[i] {
			m.blur(&got[i][k])
		}
	}
	alike(t, what, got)
}

// token compares the leases found by token: of claims that are in force, have ended, and never existed.
func (m *machine) token(t *rapid.T) {
	pair := m.some(t)[0]
	got := both(m, t, "lease", func(i int, l *ledger.Ledger) (*ledger.Lease, error) {
		return l.Lease(m.tb.Context(), pair[i].ID, pair[i].Attempt)
	})
	var told [2][]string
	for i, ls := range got {
		if ls != nil {
			told[i] = append(claimed([]*ledger.Lease{ls}), ls.Agent, fmt.Sprint(ls.LockID == pair[i].LockID))
		}
	}
	same(t, "lease", told)
}

// alike is same, but nil and empty are equal.
func alike[T any](t *rapid.T, what string, got [2]T) {
	if d := cmp.Diff(got[0], got[1], cmpopts.EquateEmpty()); d != "" {
		t.Fatalf("%s (-memory +store):\n%s", what, d)
	}
}

// kinds compares the answers about kinds and agents, and about the ledger as a whole.
func (m *machine) kinds(t *rapid.T) {
	ctx := m.tb.Context()
	m.verify(t, m.l[1])
	all := both(m, t, "kinds", func(_ int, l *ledger.Ledger) ([]ledger.Kind, error) { return l.Kinds(ctx) })
	alike(t, "kinds", all)
	pauses := both(m, t, "pauses", func(i int, l *ledger.Ledger) (map[string]ledger.JournalEntry, error) {
		pauses, err := l.Pauses(ctx, all[i]...)
		for name, e := range pauses {
			e.ID = 0 // a database may leave out numbers of entries
			pauses[name] = e
		}
		return pauses, err
	})
	alike(t, "pauses", pauses)
	one := both(m, t, "kind", func(_ int, l *ledger.Ledger) (ledger.Kind, error) { return l.Kind(ctx, "b") })
	alike(t, "kind b", one)
	standing := both(m, t, "standing", func(_ int, l *ledger.Ledger) (stats.Standing, error) {
		return l.Standing(ctx, "b")
	})
	same(t, "standing", standing)
	part := both(m, t, "standing of a shard", func(_ int, l *ledger.Ledger) (stats.Standing, error) {
		return l.StandingIn(ctx, "b", scheduler.Shard{Index: 1, Count: 3})
	})
	same(t, "standing of a shard", part)
	agents := both(m, t, "agents", func(_ int, l *ledger.Ledger) ([]ledger.Agent, error) { return l.Agents(ctx) })
	alike(t, "agents", agents)
	lapsed := both(m, t, "lapsed", func(_ int, l *ledger.Ledger) ([]ledger.Agent, error) { return l.Lapsed(ctx) })
	alike(t, "lapsed", lapsed)
	beats := both(m, t, "heartbeats", func(_ int, l *ledger.Ledger) ([]ledger.Agent, error) { return l.Heartbeats(ctx) })
	alike(t, "heartbeats", beats)
	for _, since := range []time.Duration{0, 100 * time.Second} {
		counts := both(m, t, "counts", func(_ int, l *ledger.Ledger) ([]stats.Counts, error) {
			return l.Counts(ctx, m.clock.now().Add(-since))
		})
		same(t, "counts", counts)
	}
}
