package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// ended lists attempts by when they ended, whatever became of them, in pages.
func ended(t *testing.T, h *harness) {
	h.policy(ledger.Kind{Name: "k", OnLost: ledger.OnLostDoubt})
	h.add(ledger.NewItem{Kind: "j", Key: "j1"}, ledger.NewItem{Kind: "j", Key: "daily", Every: "day", Scope: "s"})
	h.many(9)
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
		if q.Limit == 0 {
			q.Limit = 100
		}
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
		f, err := ledger.ParseFilter(s, h.clock.now())
		h.ok(err)
		return f
	}
	got, _ = list(ledger.EndedQuery{Filter: filter("kind:j")})
	equal(t, "of a kind", got, []string{"j failed", "j done"})
	got, _ = list(ledger.EndedQuery{Filter: filter(`error~"did not work"`), Failed: true})
	equal(t, "with an error", got, []string{"j failed", "k failed", "k unknown"})
	es, err := h.l.Ended(h.ctx, ledger.EndedQuery{Filter: filter("scope:s"), Limit: 1})
	h.ok(err)
	equal(t, "what it was about", [4]string{es[0].Key, es[0].Scope, es[0].Round, es[0].Agent}, [4]string{"daily", "s", "2026-11-20", "a"})
	equal(t, "without what may be long", fmt.Sprint(es[0].Log, es[0].Output), "[]")
	_, err = h.l.Ended(h.ctx, ledger.EndedQuery{})
	h.is(err, ledger.ErrInvalid)
}

// tallies add up by minute, are folded into hours, and in the end forgotten.
func tallies(t *testing.T, h *harness) {
	minute := func(n int) time.Time { return start.Add(time.Duration(n) * time.Minute) }
	one := func(n int, kind, agent string) ledger.MinuteTally {
		return ledger.MinuteTally{At: minute(n).Add(7 * time.Second), Kind: kind, Agent: agent, Done: 1, Failed: 2, Other: 3, Worked: 4 * time.Microsecond}
	}
	h.ok(h.l.AddTallies(h.ctx, one(0, "k", "a"), one(0, "k", "b"), one(0, "j", "a"), one(1, "k", "a")))
	h.ok(h.l.AddTallies(h.ctx, one(1, "k", "a"), one(1, "k", "a")))
	h.ok(h.l.AddTallies(h.ctx))
	sum := func(n int, kind string, times int64) ledger.MinuteTally {
		return ledger.MinuteTally{At: minute(n), Kind: kind, Done: times, Failed: 2 * times, Other: 3 * times, Worked: time.Duration(4*times) * time.Microsecond}
	}
	want := []ledger.MinuteTally{sum(0, "j", 1), sum(0, "k", 2), sum(1, "k", 3)}
	read := func(n int) []ledger.MinuteTally {
		t.Helper()
		got, err := h.store.Tallies(h.ctx, minute(n))
		h.ok(err)
		return append([]ledger.MinuteTally{}, got...)
	}
	equal(t, "tallies", read(0), want)
	equal(t, "since a minute", read(1), want[2:])
	h.ok(h.l.FoldTallies(h.ctx))
	equal(t, "nothing is folded yet", read(0), want)
	h.clock.advance(ledger.TallyMinutes + time.Hour)
	h.ok(h.l.FoldTallies(h.ctx))
	h.ok(h.l.FoldTallies(h.ctx))
	equal(t, "folded", read(0), []ledger.MinuteTally{})
	h.is(h.l.AddTallies(h.ctx, ledger.MinuteTally{Kind: "k"}), ledger.ErrInvalid)
	h.is(h.l.AddTallies(h.ctx, ledger.MinuteTally{Kind: "k", Agent: "a", Done: -1}), ledger.ErrInvalid)
	h.clock.advance(ledger.TallyHours)
	h.ok(h.l.FoldTallies(h.ctx))
}

// stats take what is open from the backlog and what ended from tallies.
func stats(t *testing.T, h *harness) {
	h.clock.advance(15 * time.Second)
	h.many(6)
	h.end(h.take("k"), ledger.Done(nil)) // of no interest: nobody has tallied it
	h.claim("k", 1)
	h.ok(h.l.Beat(h.ctx, ledger.Agent{Name: "a", Kinds: map[string]string{"k": ""}}, time.Minute))
	now := h.clock.now()
	h.ok(h.l.AddTallies(h.ctx,
		ledger.MinuteTally{At: now, Kind: "k", Agent: "a", Done: 20, Failed: 10, Worked: 3 * time.Second},
		ledger.MinuteTally{At: now.Add(-time.Minute), Kind: "k", Agent: "a", Done: 40},
		ledger.MinuteTally{At: now.Add(-30 * time.Minute), Kind: "k", Agent: "b", Other: 30},
		ledger.MinuteTally{At: now.Add(-2 * time.Hour), Kind: "k", Agent: "b", Done: 1000}))
	s, err := h.l.Stats(h.ctx)
	h.ok(err)
	k := ledger.KindStats{Counts: ledger.Counts{Kind: "k", Ready: 4, Leased: 1, OldestReady: now, Done: 60, Failed: 10},
		PerSecond: 1, ETA: 5 * time.Second, Worked: 30 * time.Millisecond, Workers: 1} // 30 in this minute, 40 · ¾ in the last
	equal(t, "stats", s, ledger.Stats{At: now, Agents: 1, Kinds: []ledger.KindStats{k}})
}

// leasedBy counts what agents hold, programs and others.
func leasedBy(t *testing.T, h *harness) {
	h.many(5)
	h.claim("k", 3)
	_, err := h.l.Claim(h.ctx, ledger.Claim{Kind: "k", Agent: "ann", Limit: 1})
	h.ok(err)
	got, err := h.l.LeasedBy(h.ctx)
	h.ok(err)
	equal(t, "held", got, map[string]int64{"a": 3, "ann": 1})
}
