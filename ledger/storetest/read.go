package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/act"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/cause"
	"github.com/ledgerd/ledgerd/ledger/filter"
	"github.com/ledgerd/ledgerd/ledger/health"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

func standing(t *testing.T, h *harness) {
	h.ok(h.l.Beat(h.ctx, ledger.Agent{Name: "a", Kinds: map[string]string{"k": ""}}, time.Minute))
	h.addMany(6)
	h.add(ledger.NewItem{Kind: "k", Key: "waits", Due: start.Add(2 * time.Hour)},
		ledger.NewItem{Kind: "k", Key: "waits less", Due: start.Add(time.Hour)}, ledger.NewItem{Kind: "other", Key: "x"})
	ls := h.claim("k", 3)
	h.end(ls[0], ledger.Permanent(errTest))
	h.end(ls[1], ledger.Doubt(errTest))
	_, err := h.l.Claim(h.ctx, ledger.Claim{Kind: "k", Agent: "alice", Limit: 1, TTL: time.Hour})
	h.ok(err)
	s, err := h.l.Standing(h.ctx, "k")
	h.ok(err)
	equal(t, "standing", s, stats.Standing{Now: start, Ready: 2, Held: 1, Persons: 1, Waiting: 2,
		NextDue: start.Add(time.Hour), Dead: 1, Doubt: 1})
	h.clock.advance(90 * time.Minute)
	s, err = h.l.Standing(h.ctx, "k")
	h.ok(err)
	equal(t, "what is due counts as ready; what expired is still held, and no longer by a person", s,
		stats.Standing{Now: start.Add(90 * time.Minute), Ready: 3, Held: 2, Waiting: 1, NextDue: start.Add(2 * time.Hour),
			Dead: 1, Doubt: 1})
	s, err = h.l.Standing(h.ctx, "nothing")
	h.ok(err)
	equal(t, "of an unknown kind", s, stats.Standing{Now: start.Add(90 * time.Minute)})
	whole, err := h.l.Standing(h.ctx, "k")
	h.ok(err)
	var sum stats.Standing
	for i := range 3 {
		s, err := h.l.StandingIn(h.ctx, "k", scheduler.Shard{Index: i, Count: 3})
		h.ok(err)
		if s == whole {
			t.Errorf("shard %d of 3 is all", i)
		}
		sum.Ready, sum.Held = sum.Ready+s.Ready, sum.Held+s.Held
		sum.Persons, sum.Waiting = sum.Persons+s.Persons, sum.Waiting+s.Waiting
		sum.Dead, sum.Doubt, sum.Now = sum.Dead+s.Dead, sum.Doubt+s.Doubt, s.Now
		if !s.NextDue.IsZero() && (sum.NextDue.IsZero() || s.NextDue.Before(sum.NextDue)) {
			sum.NextDue = s.NextDue
		}
	}
	equal(t, "sum of the shards", sum, whole)
	_, err = h.l.StandingIn(h.ctx, "k", scheduler.Shard{Index: 3, Count: 3})
	h.is(err, ledger.ErrInvalid)
}

func agents(t *testing.T, h *harness) {
	a := ledger.Agent{Name: "host/1/x", Host: "host", PID: 1, Version: "v1", Kinds: map[string]string{"k": "p@1+a"},
		Shard: scheduler.Shard{Index: 1, Count: 4}, Skew: -3 * time.Millisecond,
		Stalled: map[string]time.Time{"k": start.Add(5 * time.Minute)},
		Plugins: map[string]health.Plugin{"k": {Version: "1", State: health.Crashing,
			Restarts: 4, Code: "crashed", Error: "exited with 1", ErrorAt: start, RSS: 1 << 30}}}
	h.ok(h.l.Beat(h.ctx, a, time.Minute))
	h.clock.advance(30 * time.Second)
	a.Kinds["j"] = "q@1+b"
	h.ok(h.l.Beat(h.ctx, a, time.Minute))
	h.ok(h.l.Beat(h.ctx, ledger.Agent{Name: "brief", Kinds: map[string]string{"k": ""},
		Configs: map[string]string{"k": ""}}, time.Second))
	h.clock.advance(10 * time.Second)
	got, err := h.l.Agents(h.ctx)
	h.ok(err)
	a.StartedAt, a.SeenAt = start, start.Add(30*time.Second)
	equal(t, "agents", got, []ledger.Agent{a})
	h.ok(h.l.Beat(h.ctx, a, 0))
	got, err = h.l.Agents(h.ctx)
	h.ok(err)
	equal(t, "agents", len(got), 0)
	h.is(h.l.Beat(h.ctx, ledger.Agent{}, time.Minute), ledger.ErrInvalid)
	a.Stalled = map[string]time.Time{"No kind": start}
	h.is(h.l.Beat(h.ctx, a, time.Minute), ledger.ErrInvalid)
	a.Stalled = map[string]time.Time{"does-not-start": start}
	a.Plugins = map[string]health.Plugin{"another": {State: health.Running}}
	h.is(h.l.Beat(h.ctx, a, time.Minute), ledger.ErrInvalid)
	a.Plugins = map[string]health.Plugin{"does-not-start": {State: "well"}}
	h.is(h.l.Beat(h.ctx, a, time.Minute), ledger.ErrInvalid)
	a.Plugins = map[string]health.Plugin{"does-not-start": {State: health.Absent, Code: "checksum", ErrorAt: start}}
	a.Configs = map[string]string{"another": "{}"}
	h.is(h.l.Beat(h.ctx, a, time.Minute), ledger.ErrInvalid)
	a.Configs = map[string]string{"does-not-start": `{"a":1}`}
	h.ok(h.l.Beat(h.ctx, a, time.Minute))
	got, err = h.l.Agents(h.ctx)
	h.ok(err)
	equal(t, "stalled", got[0].Stalled, a.Stalled)
	equal(t, "settings that are wanted", got[0].Configs, a.Configs)
	for i := range 3000 {
		a.Kinds[fmt.Sprintf("kind-%04d", i)] = "exec@1.0+0123456789abcdef"
	}
	h.ok(h.l.Beat(h.ctx, a, time.Minute))
	got, err = h.l.Agents(h.ctx)
	h.ok(err)
	equal(t, "kinds", got[0].Kinds, a.Kinds)
	for kind := range a.Kinds {
		a.Kinds[kind] = strings.Repeat("x", bounds.MaxWorker)
	}
	err = h.l.Beat(h.ctx, a, time.Minute)
	h.is(err, ledger.ErrInvalid)
	equal(t, "the bound is named", strings.Contains(err.Error(), "at most 262,144"), true)
	again := h.clock.now().Add(time.Second)
	h.clock.advance(time.Second)
	for _, other := range []ledger.Agent{{Name: a.Name, Host: "elsewhere", PID: 1},
		{Name: a.Name, Host: "elsewhere", PID: 2}, {Name: a.Name, Host: "elsewhere", PID: 2, Process: "p"}} {
		h.ok(h.l.Beat(h.ctx, other, time.Minute)) // another process uses the name now
		got, err = h.l.Agents(h.ctx)
		h.ok(err)
		equal(t, "since when it runs", got[0].StartedAt, again)
		again = again.Add(time.Second)
		h.clock.advance(time.Second)
		h.ok(h.l.Beat(h.ctx, other, time.Minute))
		got, err = h.l.Agents(h.ctx)
		h.ok(err)
		equal(t, "since when it runs, at a later beat", got[0].StartedAt, again.Add(-time.Second))
	}
}

// keysOfMany: a filter by key finds the item of each kind and scope, in order, however few kinds and scopes it names.
func keysOfMany(t *testing.T, h *harness) {
	for _, n := range []ledger.NewItem{ // one by one, as their ids follow the order of the calls
		{Kind: "k", Key: "a"}, {Kind: "j", Key: "a"}, {Kind: "k", Scope: "s", Key: "a"},
		{Kind: "k", Scope: "z", Key: "b"}, {Kind: "k", Scope: "é", Key: "a"}, {Kind: "k", Key: "b"},
	} {
		h.add(n)
	}
	scopes, err := h.store.Scopes(h.ctx, "k", 10)
	h.ok(err)
	equal(t, "scopes", scopes, []string{"", "s", "z", "é"})
	scopes, err = h.store.Scopes(h.ctx, "k", 3)
	h.ok(err)
	equal(t, "the first scopes", scopes, []string{"", "s", "z"})
	for where, want := range map[string]string{
		"key:a":             "k/ j/ k/s k/é",
		"key:a kind:k":      "k/ k/s k/é",
		"key:a scope:":      "k/ j/",
		"key:a scope:s,é":   "k/s k/é",
		"key:a kind:k,none": "k/ k/s k/é",
		"key:b key~b":       "k/z k/",
		"key:a key:b":       "",
		"key:c":             "",
		"key:a since:2h":    "k/ j/ k/s k/é",
		"key:a until:2h":    "",
	} {
		f, err := filter.Parse(where, h.clock.now())
		h.ok(err)
		for _, desc := range []bool{false, true} {
			var got []string
			for it, err := range h.l.Walk(h.ctx, &ledger.Walk{Filter: f, Desc: desc}) {
				h.ok(err)
				got = append(got, it.Kind+"/"+it.Scope)
			}
			if desc {
				slices.Reverse(got)
			}
			equal(t, where, strings.Join(got, " "), want)
		}
		n, err := h.l.Count(h.ctx, f)
		h.ok(err)
		equal(t, "count of "+where, n, int64(len(strings.Fields(want))))
	}
}

// agentSlots: the name of a program finds the items of all its workers, and of no others.
func agentSlots(t *testing.T, h *harness) {
	for _, name := range []string{"box-a", "box-a/2", "box-a/13", "box-a/2/3", "box-a/x", "box-ab", "box-a2", "box/7"} {
		h.addOne("of " + name)
		leases, err := h.l.Claim(h.ctx, ledger.Claim{Kind: "k", Agent: name, Limit: 1, TTL: time.Minute})
		h.ok(err)
		equal(t, name, len(leases), 1)
	}
	h.addOne("without an agent")
	for where, want := range map[string]string{
		"agent:box-a":       "box-a box-a/2 box-a/13",
		"agent:box-a/2":     "box-a/2 box-a/2/3",
		"agent:box-a/13":    "box-a/13",
		"agent:box,box-a/x": "box-a/x box/7",
		"agent:box-":        "",
	} {
		f, err := filter.Parse(where, start)
		h.ok(err)
		var got []string
		for it, err := range h.l.List(h.ctx, f, 0) {
			h.ok(err)
			got = append(got, it.Agent)
		}
		equal(t, where, strings.Join(got, " "), want)
		n, err := h.l.Count(h.ctx, f)
		h.ok(err)
		equal(t, "count of "+where, n, int64(len(got)))
	}
}

func filters(t *testing.T, h *harness) {
	h.add(ledger.NewItem{Kind: "k", Key: "/in/a_1%.csv"}, ledger.NewItem{Kind: "k", Key: "/in/b.csv"},
		ledger.NewItem{Kind: "k", Key: "/out/c.csv"}, ledger.NewItem{Kind: "k", Scope: "s", Key: "/in/a_1%.csv"})
	h.add(ledger.NewItem{Kind: "j", Key: "x", Due: start.Add(time.Hour), Priority: -1, ShardKey: "a,b"})
	ls := h.claim("k", 4)
	h.end(ls[0], ledger.Result{Outcome: ledger.OutcomeFailed, Final: true, Code: "http_404", Error: "Not found: 100%_é"})
	h.end(ls[1], ledger.Done(nil))
	h.clock.advance(time.Hour + time.Minute)
	h.end(ls[2], ledger.Result{Outcome: ledger.OutcomeFailed, Code: "timeout", Error: "took too long"})
	for _, c := range []struct {
		where string
		want  string // keys, in id order
	}{
		{"", "/in/a_1%.csv /in/b.csv /out/c.csv /in/a_1%.csv x"},
		{"kind:j", "x"},
		{"kind:j,k state:ready", "x"}, // it is due
		{"state:dead,done", "/in/a_1%.csv /in/b.csv"},
		{"state:done", "/in/b.csv"},
		{"state:leased", "/in/a_1%.csv"},
		{"state:waiting", "/out/c.csv"},
		{"state:cancelled,doubt", ""},
		{"agent:a", "/in/a_1%.csv"},
		{"agent:b", ""},
		{"scope:s", "/in/a_1%.csv"},
		{"scope: kind:j", "x"},
		{"key:/in/b.csv", "/in/b.csv"},
		{"key:/in/*", "/in/a_1%.csv /in/b.csv /in/a_1%.csv"},
		{"key:/in/a_1%*", "/in/a_1%.csv /in/a_1%.csv"},
		{"key~_1%", "/in/a_1%.csv /in/a_1%.csv"},
		{"key~.CSV", ""},
		{"shard_key:a,b", "x"},
		{"shard_key:/in/b.csv shard_key:/in/b.csv", "/in/b.csv"}, // an item without a shard key has its key as one
		{"shard_key:x", ""},
		{"code:http_404,timeout", "/in/a_1%.csv /out/c.csv"},
		{"cause:" + cause.Of("timeout", "took too long", "/out/c.csv"), "/out/c.csv"},
		{"cause:000000000000", ""},
		{"error~100%_", "/in/a_1%.csv"},
		{`error~"too long"`, "/out/c.csv"},
		{"error~not", ""},
		{"since:30m", "/out/c.csv"},
		{"since:2h state:done", "/in/b.csv"},
		{"until:30m", "/in/a_1%.csv /in/b.csv /in/a_1%.csv x"},
		{"until:30m since:61m", "/in/a_1%.csv /in/b.csv /in/a_1%.csv x"},
		{"until:61m", ""},
		{"added:61m", "/in/a_1%.csv /in/b.csv /out/c.csv /in/a_1%.csv x"},
		{"added:60m", ""},
		{"added:..61m", ""},
		{"added:..60m kind:j", "x"},
		{"due:..30m", "/in/a_1%.csv /in/a_1%.csv"}, // what is done is due no more
		{"due:..30s state:ready,leased", "/in/a_1%.csv x"},
		{"due:30m", "/out/c.csv x"},
		{"due:61m..60m", "/in/a_1%.csv /in/a_1%.csv"},
		{"due:2026-11-21", ""},
		{"priority:0,1", "/in/a_1%.csv /out/c.csv /in/a_1%.csv"}, // finished items have no priority
		{"priority:-1", "x"},
		{fmt.Sprintf("id:%d,%d", ls[0].ID, ls[2].ID), "/in/a_1%.csv /out/c.csv"},
		{fmt.Sprintf("id:%d state:done", ls[0].ID), ""},
	} {
		f, err := filter.Parse(c.where, h.clock.now())
		h.ok(err)
		var got []string
		for it, err := range h.l.List(h.ctx, f, 0) {
			h.ok(err)
			got = append(got, it.Key)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%q lists %q, want %q", c.where, strings.Join(got, " "), c.want)
		}
		n, err := h.l.Count(h.ctx, f)
		h.ok(err)
		if int(n) != len(got) {
			t.Errorf("%q counts %d, lists %d", c.where, n, len(got))
		}
	}
	n, err := h.l.Count(h.ctx, ledger.Filter{ErrorHas: "\xa9"})
	h.ok(err)
	equal(t, "items by half of a character", n, 0)
}

func listPages(t *testing.T, h *harness) {
	h.addMany(1203)
	f := ledger.Filter{Kinds: []string{"k"}}
	last, n := int64(0), 0
	for it, err := range h.l.List(h.ctx, f, 0) {
		h.ok(err)
		if it.ID <= last {
			t.Fatalf("%d after %d", it.ID, last)
		}
		last = it.ID
		n++
	}
	equal(t, "listed", n, 1203)
	n = 0
	for it, err := range h.l.List(h.ctx, f, last-5) {
		h.ok(err)
		if n++; it.ID <= last-5 {
			t.Fatalf("%d is not after %d", it.ID, last-5)
		}
	}
	equal(t, "from a cursor", n, 5)
	for range h.l.List(h.ctx, f, 0) {
		break // a reader may stop early
	}
	h.add(ledger.NewItem{Kind: "k", Key: "later", Due: start.Add(time.Minute)})
	f.States = []ledger.State{ledger.StateReady}
	n = 0
	for it, err := range h.l.List(h.ctx, f, 0) {
		h.ok(err)
		if equal(t, it.Key, it.State, ledger.StateReady); n == 0 {
			h.clock.advance(time.Hour) // while the list is read
		}
		n++
	}
	equal(t, "listed as ready", n, 1204)
}

func recent(t *testing.T, h *harness) {
	h.addMany(5)
	ls := h.claim("k", 4)
	for i, l := range []*ledger.Lease{ls[2], ls[0], ls[3]} {
		h.clock.advance(time.Minute)
		h.end(l, ledger.Done([]byte{byte(i)}))
	}
	h.end(ls[1], ledger.Permanent(errTest))
	es, err := h.l.Recent(h.ctx, ledger.Filter{States: []ledger.State{ledger.StateDone}}, 2)
	h.ok(err)
	equal(t, "no more than asked", len(es), 2)
	equal(t, "as they ended", []int64{es[0].ItemID, es[1].ItemID}, []int64{ls[0].ID, ls[3].ID})
}

func countsByKind(t *testing.T, h *harness) {
	h.addMany(6)
	h.add(ledger.NewItem{Kind: "j", Key: "x", Due: start.Add(time.Hour)})
	ls := h.claim("k", 4)
	h.end(ls[0], ledger.Done(nil))
	h.end(ls[1], ledger.Permanent(errTest))
	h.end(ls[2], ledger.Doubt(errTest))
	got, err := h.l.Counts(h.ctx, start)
	h.ok(err)
	equal(t, "counts", got, []stats.Counts{{Kind: "j", Waiting: 1}, {Kind: "k", Ready: 2, Leased: 1, Dead: 1, Doubt: 1,
		OldestReady: start, Done: 1, Failed: 1}})
	got, err = h.l.Counts(h.ctx, start.Add(time.Second))
	h.ok(err)
	equal(t, "nothing since", [2]int64{got[1].Done, got[1].Failed}, [2]int64{})
}

// times: a time is returned in UTC, to the microsecond, also far in the future.
func times(t *testing.T, h *harness) {
	for i, due := range []time.Time{time.Date(2026, 3, 29, 1, 59, 59, 999_999_000, time.UTC),
		time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC), time.Date(1970, 1, 1, 0, 0, 0, 1000, time.UTC),
		time.Date(2026, 11, 20, 11, 0, 0, 1000, time.FixedZone("x", 3600))} {
		id := h.add(ledger.NewItem{Kind: "k", Key: fmt.Sprint(i), Due: due})[0].ID
		got := h.item(id).Due
		if !got.Equal(due.Truncate(time.Microsecond)) || got.Location() != time.UTC {
			t.Errorf("due %v came back as %v", due, got)
		}
	}
	h.clock.advance(123456789 * time.Nanosecond)
	h.addOne("now")
	now := start.Add(123456 * time.Microsecond)
	it, err := h.l.Find(h.ctx, "k", "", "now")
	h.ok(err)
	equal(t, "created", it.CreatedAt, now)
	equal(t, "due", it.Due, now)
	for since, want := range map[time.Time]int64{now: 1, now.Add(789 * time.Nanosecond): 0} {
		n, err := h.l.Count(h.ctx, ledger.Filter{Since: since})
		h.ok(err)
		equal(t, "since "+since.String(), n, want)
	}
}

func whySentences(t *testing.T, h *harness) {
	why := func(id int64, code, part string, acts ...act.Act) {
		t.Helper()
		r, err := h.l.Why(h.ctx, id)
		h.ok(err)
		if r.Code != code || !strings.Contains(r.Text, part) {
			t.Fatalf("why %d: %+v, want %s with %q", id, r, code, part)
		}
		equal(t, "acts", r.Acts, acts)
	}
	id := h.addOne("x")
	why(id, "no_worker", "no agent works kind k now")
	h.ok(h.l.Beat(h.ctx, ledger.Agent{Name: "other", Kinds: map[string]string{"j": ""}}, time.Minute))
	why(id, "no_worker", "no agent works kind k now")
	slot := h.item(id).Slot
	elsewhere := ledger.Agent{Name: "shard", Kinds: map[string]string{"k": ""},
		Shard: scheduler.Shard{Index: (slot + 1) % 4, Count: 4}}
	h.ok(h.l.Beat(h.ctx, elsewhere, time.Minute))
	why(id, "shard", fmt.Sprintf("no agent works its shard %d/4 (slot %d): kind k is worked by shards %d/4 only", slot%4,
		slot, (slot+1)%4), act.Act{Name: act.Work, Kind: "k", Shard: fmt.Sprintf("%d/4", slot%4)})
	elsewhere.Shard.Index = slot % 4
	h.ok(h.l.Beat(h.ctx, elsewhere, time.Minute))
	why(id, "behind", "the next of its kind; shard works this kind")
	elsewhere.Stalled = map[string]time.Time{"k": start.Add(5 * time.Minute)}
	h.ok(h.l.Beat(h.ctx, elsewhere, time.Minute))
	why(id, "breaker", "the plugin of kind k crashes again and again where it is worked (shard); it is tried again at",
		act.Act{Name: act.ShowErrors, Kind: "k"})
	h.ok(h.l.Beat(h.ctx, ledger.Agent{Name: "sound", Kinds: map[string]string{"k": ""}}, time.Minute))
	why(id, "behind", "the next of its kind; sound works this kind")
	h.ok(h.l.Beat(h.ctx, ledger.Agent{Name: "sound"}, 0))
	h.ok(h.l.Beat(h.ctx, elsewhere, 0))
	h.ok(h.l.Beat(h.ctx, ledger.Agent{Name: "a", Kinds: map[string]string{"k": ""}}, time.Minute))
	why(id, "behind", "a works this kind")
	first := h.add(ledger.NewItem{Kind: "k", Key: "first", Priority: -1},
		ledger.NewItem{Kind: "j", Key: "another kind", Priority: -1})[0].ID
	why(id, "behind", "behind 1 other of its kind; a works this kind")
	h.add(ledger.NewItem{Kind: "k", Key: "after"}, ledger.NewItem{Kind: "k", Key: "earlier", Due: start.Add(-time.Minute)},
		ledger.NewItem{Kind: "k", Key: "much later", Due: start.Add(time.Hour)})
	h.ok(h.l.Beat(h.ctx, ledger.Agent{Name: "b", Kinds: map[string]string{"k": ""}}, time.Minute))
	why(id, "behind", "behind 2 others of its kind; a and 1 more work this kind")
	h.ok(h.l.Beat(h.ctx, ledger.Agent{Name: "b"}, 0))
	why(first, "behind", "the next of its kind")
	_, err := h.l.Cancel(h.ctx, "ann", ledger.Filter{Kinds: []string{"k"},
		Also: []ledger.Filter{{Priorities: []int16{-1}}}})
	h.ok(err)
	for _, key := range []string{"after", "earlier", "much later"} {
		_, err = h.l.Cancel(h.ctx, "ann", ledger.Filter{Key: key})
		h.ok(err)
	}
	h.policy(ledger.Kind{Name: "k", Paused: true})
	why(id, "paused", "paused", act.Act{Name: act.Resume, Kind: "k"})
	h.policy(ledger.Kind{Name: "k"})
	ls := h.claimOne("k")
	why(id, "leased", "a works on it (attempt 1)")
	h.clock.advance(2 * time.Minute)
	why(id, "leased", "the next worker takes it back", act.Act{Name: act.Work})
	h.clock.advance(-2 * time.Minute)
	h.end(ls, ledger.RetryAfter(time.Minute, errTest))
	retry := act.Act{Name: act.Retry, Item: id}
	why(id, "backoff", "tried again at", retry)
	h.pass(time.Minute)
	h.end(h.claimOne("k"), ledger.Permanent(errTest))
	why(id, "dead", errTest.Error(), retry)
	_, err = h.l.Cancel(h.ctx, "ann", ledger.IDs(id))
	h.ok(err)
	why(id, "cancelled", "cancelled", act.Act{Name: act.Reopen, Item: id})
	h.addOne("fine")
	fine := h.claimOne("k")
	h.end(fine, ledger.Done(nil))
	why(fine.ID, "done", "done in attempt 1")
	later := h.add(ledger.NewItem{Kind: "k", Key: "later", Due: start.Add(time.Hour)},
		ledger.NewItem{Kind: "k", Key: "doubt"},
		ledger.NewItem{Kind: "k", Key: "rec", Every: "day", Due: start.Add(time.Hour)})
	why(later[0].ID, "due", "due at")
	why(later[2].ID, "next", "round 2026-11-20")
	h.end(h.claimOne("k"), ledger.Doubt(errTest))
	fails := h.add(ledger.NewItem{Kind: "k", Key: "fails, snoozes"})[0].ID
	h.end(h.claimOne("k"), ledger.RetryAfter(time.Minute, errTest))
	h.pass(time.Minute)
	notYet := ledger.Snooze(time.Minute, "")
	notYet.Code = "not_yet"
	goesOn := fmt.Sprintf("it goes on at %s UTC.", h.clock.now().Add(time.Minute).UTC().Format(time.DateTime))
	h.end(h.claimOne("k"), notYet)
	why(fails, "due", "Attempt 2 was put off by its handler (not_yet); "+goesOn, act.Act{Name: act.Retry, Item: fails})
	daily := h.add(ledger.NewItem{Kind: "k", Key: "daily", Every: "day"})[0].ID
	h.end(h.claimOne("k"), ledger.Snooze(time.Minute, ""))
	why(daily, "due", "Attempt 1 was put off by its handler; "+goesOn)
	in := later[1].ID
	why(in, "doubt", "a person decides", act.Act{Name: act.Retry, Item: in}, act.Act{Name: act.Finish, Item: in},
		act.Act{Name: act.Cancel, Item: in})
	_, err = h.l.Why(h.ctx, 1<<40)
	h.is(err, ledger.ErrNotFound)
}
