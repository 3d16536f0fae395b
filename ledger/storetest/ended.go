package storetest

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/filter"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// ended: Ended lists attempts with any outcome in pages, by the time they ended.
func ended(t *testing.T, h *harness) {
	h.policy(ledger.Kind{Name: "k", OnLost: ledger.OnLostDoubt})
	h.add(ledger.NewItem{Kind: "j", Key: "j1"}, ledger.NewItem{Kind: "j", Key: "daily", Every: "day", Scope: "s"})
	h.addMany(9)
	want := []string{}
	at := func(what string, end func()) {
		h.clock.advance(time.Second)
		end()
		want = append(want, what)
	}
	ls := h.claim("k", 8)
	h.is(h.l.Start(h.ctx, time.Minute, ls[6])[0], nil)
	js := h.claim("j", 2)
	at("k done", func() { h.end(ls[0], ledger.Done([]byte("o"))) })
	at("j failed", func() { h.end(js[0], ledger.RetryAfter(time.Hour, errTest)) })
	at("k skipped", func() { h.end(ls[1], ledger.Skip("")) })
	at("k failed", func() { h.end(ls[2], ledger.Permanent(errTest)) })
	at("k snoozed", func() { h.end(ls[3], ledger.Snooze(time.Hour, "")) })
	at("k released", func() { h.end(ls[4], ledger.Release()) })
	at("k unknown", func() { h.end(ls[5], ledger.Doubt(errTest)) })
	at("j done", func() { h.end(js[1], ledger.Done(nil)) })
	at("k cancelled", func() {
		_, err := h.l.Cancel(h.ctx, "op", ledger.IDs(ls[4].ID))
		h.ok(err)
	})
	at("k lost", func() { h.pass(2 * time.Minute) })
	want = append(want, "k lost") // at the same instant

	list := func(q ledger.EndedQuery) (got []string, last ledger.Mark) {
		t.Helper()
		q.Limit = cmp.Or(q.Limit, 100)
		es, err := h.l.Ended(h.ctx, q)
		h.ok(err)
		for _, e := range es {
			got, last = append(got, e.Kind+" "+string(e.Outcome)), e.Mark()
		}
		return got, last
	}
	got, _ := list(ledger.EndedQuery{})
	equal(t, "all", got, want)
	var paged []string
	for mark := (ledger.Mark{}); ; {
		page, last := list(ledger.EndedQuery{After: mark, Limit: 2})
		if len(page) == 0 {
			break
		}
		paged, mark = append(paged, page...), last
	}
	equal(t, "in pages", paged, want)
	got, _ = list(ledger.EndedQuery{Failed: true})
	equal(t, "failed", got, []string{"j failed", "k failed", "k unknown", "k lost", "k lost"})
	got, _ = list(ledger.EndedQuery{After: ledger.Mark{At: start.Add(9 * time.Second)}})
	equal(t, "at a time or later", got, []string{"k cancelled", "k lost", "k lost"})
	filter := func(s string) ledger.Filter {
		f, err := filter.Parse(s, h.clock.now())
		h.ok(err)
		return f
	}
	got, _ = list(ledger.EndedQuery{Filter: filter("kind:j")})
	equal(t, "of a kind", got, []string{"j failed", "j done"})
	got, _ = list(ledger.EndedQuery{Filter: filter(`error~"did not work"`), Failed: true})
	equal(t, "with an error", got, []string{"j failed", "k failed", "k unknown"})
	es, err := h.l.Ended(h.ctx, ledger.EndedQuery{Filter: filter("scope:s"), Limit: 1})
	h.ok(err)
	equal(t, "what it was about", [4]string{es[0].Key, es[0].Scope, es[0].Round, es[0].Agent},
		[4]string{"daily", "s", "2026-11-20", "a"})
	equal(t, "without what may be long", fmt.Sprint(es[0].Log, es[0].Output), "[]")
	for where, want := range map[string]int{"": 1, "kind:j code:gone": 0, "scope:s since:1h": 1, "kind:k": 0} {
		closed, next, err := h.l.Rounds(h.ctx, ledger.EndedQuery{Filter: filter(where), Limit: 9}, start, 0)
		h.ok(err)
		if len(closed) != want || want > 0 && closed[0].Key != "daily" || next != (ledger.Mark{}) {
			t.Errorf("rounds %q: %+v, more from %v", where, closed, next)
		}
	}
	_, err = h.l.Ended(h.ctx, ledger.EndedQuery{})
	h.is(err, ledger.ErrInvalid)
	_, _, err = h.l.Rounds(h.ctx, ledger.EndedQuery{}, start, 0)
	h.is(err, ledger.ErrInvalid)
	endedGroups(t, h, want)
}

// endedGroups counts the same attempts ("k done" and so on) by hour, kind, code and worker.
func endedGroups(t *testing.T, h *harness, all []string) {
	count := func(f ledger.Filter, by ...string) map[string]int64 {
		t.Helper()
		counts, reached, err := h.l.AttemptGroups(h.ctx, f, by, 0)
		h.ok(err)
		equal(t, "these are all", reached, time.Time{})
		got := map[string]int64{}
		for _, g := range counts.Groups() {
			equal(t, "hours", g.Hour, g.Hour.Truncate(time.Hour))
			for o, n := range counts[g] {
				got[strings.Join(strings.Fields(g.Kind+" "+g.Code+" "+g.Worker+" "+string(o)), " ")] += n
			}
		}
		return got
	}
	want := map[string]int64{}
	for _, what := range all {
		want[what]++
	}
	equal(t, "by hour and kind", count(ledger.Filter{}, stats.ByHour, stats.ByKind), want)
	equal(t, "by code, those that failed", count(ledger.Filter{Kinds: []string{"j"}}, stats.ByCode, stats.ByKind),
		map[string]int64{"j failed": 1})
	equal(t, "by worker", count(ledger.Filter{Kinds: []string{"j"}}, stats.ByWorker, stats.ByKind),
		map[string]int64{"j a failed": 1, "j a done": 1})
	equal(t, "since", count(ledger.Filter{Since: start.Add(9 * time.Second)}, stats.ByKind),
		map[string]int64{"k cancelled": 1, "k lost": 2})
	equal(t, "until", count(ledger.Filter{Until: start.Add(2 * time.Second)}, stats.ByKind),
		map[string]int64{"k done": 1})
	equal(t, "of a scope", count(ledger.Filter{Scopes: []string{"s"}}, stats.ByKind), map[string]int64{"j done": 1})
	equal(t, "with an outcome", count(ledger.Filter{Outcomes: []ledger.Outcome{ledger.OutcomeSkipped}}, stats.ByKind),
		map[string]int64{"k skipped": 1})
}

// tallies: counts are added up by minute, and old minutes are forgotten.
func tallies(t *testing.T, h *harness) {
	minute := func(n int) time.Time { return start.Add(time.Duration(n) * time.Minute) }
	one := func(n int, kind, agent string) stats.Minute {
		return stats.Minute{At: minute(n).Add(7 * time.Second), Kind: kind, Agent: agent, Done: 1, Failed: 2, Other: 3,
			Worked: 4 * time.Microsecond, Waits: stats.Latencies{2: 5, 20: 1}, Works: stats.Latencies{0: 1}}
	}
	h.ok(h.l.AddTallies(h.ctx, one(0, "k", "a"), one(0, "k", "b"), one(0, "j", "a"), one(1, "k", "a")))
	h.ok(h.l.AddTallies(h.ctx, one(1, "k", "a"), one(1, "k", "a")))
	h.ok(h.l.AddTallies(h.ctx))
	sum := func(n int, kind string, times int64) stats.Minute {
		return stats.Minute{At: minute(n), Kind: kind, Done: times, Failed: 2 * times, Other: 3 * times,
			Worked: time.Duration(4*times) * time.Microsecond, Waits: stats.Latencies{2: 5 * times, 20: times},
			Works: stats.Latencies{0: times}}
	}
	want := []stats.Minute{sum(0, "j", 1), sum(0, "k", 2), sum(1, "k", 3)}
	read := func(n int) []stats.Minute {
		t.Helper()
		got, err := h.store.Tallies(h.ctx, minute(n))
		h.ok(err)
		return append([]stats.Minute{}, got...)
	}
	equal(t, "tallies", read(0), want)
	equal(t, "since a minute", read(1), want[2:])
	h.ok(h.l.ForgetTallies(h.ctx))
	equal(t, "nothing is forgotten yet", read(0), want)
	h.clock.advance(stats.MinutesKept + 30*time.Second)
	h.ok(h.l.ForgetTallies(h.ctx))
	equal(t, "the first minute is forgotten", read(0), want[2:])
	h.clock.advance(time.Minute)
	h.ok(h.l.ForgetTallies(h.ctx))
	equal(t, "forgotten", read(0), []stats.Minute{})
	h.is(h.l.AddTallies(h.ctx, stats.Minute{Kind: "k"}), ledger.ErrInvalid)
	h.is(h.l.AddTallies(h.ctx, stats.Minute{Kind: "k", Agent: "a", Done: -1}), ledger.ErrInvalid)
	h.is(h.l.AddTallies(h.ctx, stats.Minute{Kind: "k", Agent: "a", Waits: stats.Latencies{3: -1}}), ledger.ErrInvalid)
}

// ledgerStats: Stats counts open items in the backlog and ended attempts in the tallies.
func ledgerStats(t *testing.T, h *harness) {
	h.clock.advance(15 * time.Second)
	h.addMany(6)
	h.end(h.claimOne("k"), ledger.Done(nil)) // not in the stats, since it was not tallied
	h.claim("k", 1)
	h.end(h.claimOne("k"), ledger.Snooze(time.Hour, ""))
	h.ok(h.l.Beat(h.ctx, ledger.Agent{Name: "a", Kinds: map[string]string{"k": ""}}, time.Minute))
	h.ok(h.l.Beat(h.ctx, ledger.Agent{Name: "killed", Process: goneProcess, Kinds: map[string]string{"k": ""}},
		time.Minute))
	now := h.clock.now()
	h.ok(h.l.AddTallies(h.ctx,
		stats.Minute{At: now, Kind: "k", Agent: "a", Done: 20, Failed: 10, Other: 500, Worked: 3 * time.Second,
			Waits: stats.Latencies{9: 3}, Works: stats.Latencies{23: 1}},
		stats.Minute{At: now.Add(-time.Minute), Kind: "k", Agent: "a", Done: 40, Waits: stats.Latencies{9: 1, 10: 1}},
		stats.Minute{At: now.Add(-30 * time.Minute), Kind: "k", Agent: "b", Other: 30},
		stats.Minute{At: now.Add(-2 * time.Hour), Kind: "k", Agent: "b", Done: 1000}))
	s, err := h.l.Stats(h.ctx)
	h.ok(err)
	k := stats.Kind{Counts: stats.Counts{Kind: "k", Ready: 3, Leased: 1, Waiting: 1, OldestReady: now, Done: 60,
		Failed: 10},
		PerSecond: 1, ETA: time.Hour, Worked: 5 * time.Millisecond, Workers: 1,
		Waits: stats.Latencies{9: 4, 10: 1}, Works: stats.Latencies{23: 1}} // 30 in this minute, 40 · ¾ in the last
	minute := now.Truncate(time.Minute)
	equal(t, "stats", s, stats.Summary{At: now, Agents: 1, Kinds: []stats.Kind{k}, Paces: []stats.Pace{
		{At: minute.Add(-time.Minute), Kind: "k", Done: 40, Waits: stats.Latencies{9: 1, 10: 1}},
		{At: minute, Kind: "k", Done: 20, Failed: 10, Waits: stats.Latencies{9: 3}}}})
}
