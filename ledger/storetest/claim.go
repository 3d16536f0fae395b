package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

func keys(ls []*ledger.Lease) []string {
	out := make([]string, len(ls))
	for i, l := range ls {
		out[i] = l.Key
	}
	return out
}

func claimOrder(t *testing.T, h *harness) {
	at := func(d time.Duration) time.Time { return start.Add(d) }
	h.add(
		ledger.NewItem{Kind: "k", Key: "later", Due: at(-time.Minute)},
		ledger.NewItem{Kind: "k", Key: "earlier", Due: at(-time.Hour)},
		ledger.NewItem{Kind: "k", Key: "urgent", Priority: -2},
		ledger.NewItem{Kind: "k", Key: "lazy", Priority: 2, Due: at(-24 * time.Hour)},
		ledger.NewItem{Kind: "k", Key: "future", Due: at(time.Second)})
	equal(t, "first three", keys(h.claim("k", 3)), []string{"urgent", "earlier", "later"})
	equal(t, "the rest", keys(h.claim("k", 3)), []string{"lazy"})
	equal(t, "nothing", len(h.claim("k", 3)), 0)
	h.add(ledger.NewItem{Kind: "k", Key: "urgent too", Priority: -2}, ledger.NewItem{Kind: "k", Key: "plain"})
	equal(t, "rows that come behind what was claimed", keys(h.claim("k", 3)), []string{"urgent too", "plain"})
	h.pass(time.Second)
	equal(t, "promoted", keys(h.claim("k", 3)), []string{"future"})
}

func claimLimitsAndKinds(t *testing.T, h *harness) {
	h.addMany(5)
	h.add(ledger.NewItem{Kind: "other", Key: "x"})
	equal(t, "limit", len(h.claim("k", 3)), 3)
	equal(t, "left", len(h.claim("k", 3)), 2)
	equal(t, "other kind", keys(h.claim("other", 3)), []string{"x"})
	for _, bad := range []ledger.Claim{{Kind: "k", Agent: "a"}, {Kind: "k", Limit: 1}, {Agent: "a", Limit: 1},
		{Kind: "k", Agent: "a", Limit: bounds.MaxBatch + 1}, {Kind: "k", Agent: "a", Limit: 1, TTL: time.Millisecond},
		{Kind: "k", Agent: "a", Limit: 1, TTL: 25 * time.Hour},
		{Kind: "k", Agent: "a", Limit: 1, Shard: scheduler.Shard{Index: 2, Count: 2}}} {
		_, err := h.l.Claim(h.ctx, bad)
		h.is(err, ledger.ErrInvalid)
	}
}

func claimShards(t *testing.T, h *harness) {
	h.addMany(64)
	seen := map[int64]bool{}
	for i := range 3 {
		ls, err := h.l.Claim(h.ctx, ledger.Claim{Kind: "k", Agent: "a", Limit: 100,
			Shard: scheduler.Shard{Index: i, Count: 3}})
		h.ok(err)
		for _, l := range ls {
			if l.Slot%3 != i || l.Slot != scheduler.Slot(l.Key) || seen[l.ID] {
				t.Fatalf("shard %d got item %d of slot %d", i, l.ID, l.Slot)
			}
			seen[l.ID] = true
		}
	}
	equal(t, "all shards", len(seen), 64)
}

func claimResume(t *testing.T, h *harness) {
	h.addMany(8)
	desk := func(agent string, limit int) []*ledger.Lease {
		ls, err := h.l.Claim(h.ctx, ledger.Claim{Kind: "k", Agent: agent, Limit: limit, TTL: time.Hour, Resume: true})
		h.ok(err)
		return ls
	}
	first := desk("alice", 3)
	h.clock.advance(10 * time.Minute)
	second := desk("alice", 5)
	equal(t, "first what she holds", keys(second)[:3], keys(first))
	for i, l := range second {
		held := i < 3
		if l.Resumed != held || held && (l.LockID != first[i].LockID || l.Attempt != first[i].Attempt) ||
			!l.ExpiresAt.Equal(start.Add(70*time.Minute)) {
			t.Fatalf("lease %d: %+v", i, l)
		}
	}
	equal(t, "bob", len(desk("bob", 5)), 3)
	h.clock.advance(2 * time.Hour) // expired, but no other agent has claimed them
	equal(t, "alice again", keys(desk("alice", 5)), keys(second))
	h.end(second[0], ledger.Done(nil))
}

func claimAlone(t *testing.T, h *harness) {
	h.policy(ledger.Kind{Name: "k", MaxLost: 100})
	h.add(ledger.NewItem{Kind: "k", Key: "killer", Priority: -1})
	for range 3 {
		h.claimOne("k")
		h.pass(2 * time.Minute)
	}
	h.add(ledger.NewItem{Kind: "k", Key: "good-1", Priority: -2}, ledger.NewItem{Kind: "k", Key: "good-2"})
	equal(t, "up to the suspect", keys(h.claim("k", 10)), []string{"good-1"})
	ls := h.claim("k", 10)
	if equal(t, "the suspect by itself", keys(ls), []string{"killer"}); !ls[0].Alone || ls[0].Losses != 3 {
		t.Fatalf("%+v", ls[0])
	}
	equal(t, "the rest", keys(h.claim("k", 10)), []string{"good-2"})
	h.end(ls[0], ledger.Fail(errors.New("an answer")))
	h.pass(time.Hour)
	if ls := h.claim("k", 1); len(ls) != 1 || ls[0].Alone && ls[0].Losses == 0 {
		t.Fatalf("%+v", ls)
	}
}

func claimPaused(t *testing.T, h *harness) {
	h.addMany(2)
	h.policy(ledger.Kind{Name: "k", Paused: true})
	equal(t, "paused", len(h.claim("k", 5)), 0)
	h.policy(ledger.Kind{Name: "k"})
	equal(t, "resumed", len(h.claim("k", 5)), 2)
}

func renewKeeps(t *testing.T, h *harness) {
	h.addMany(3)
	ls := h.claim("k", 3)
	for range 5 {
		h.pass(40 * time.Second)
		h.ok(errors.Join(h.extend(ls...)...))
	}
	equal(t, "nothing for others", len(h.claim("k", 3)), 0)
	h.ok(h.l.Held(h.ctx, ls...)[0])
	h.end(ls[0], ledger.Done(nil))
	h.clock.advance(2 * time.Minute)
	errs := h.extend(ls...)
	h.is(errs[0], ledger.ErrLeaseLost)
	h.ok(errs[1]) // expired, but no other agent has it
	h.pass(2 * time.Minute)
	other := h.claimOne("k")
	errs = h.extend(ls[1:]...)
	h.is(errs[0], ledger.ErrLeaseLost)
	h.is(errs[1], ledger.ErrLeaseLost)
	h.is(h.l.Held(h.ctx, ls[1])[0], ledger.ErrLeaseLost)
	if it := h.wantState(other.ID, ledger.StateLeased); !it.ExpiresAt.Equal(other.ExpiresAt) {
		t.Fatalf("a lost lease moved the expiry of its successor to %v", it.ExpiresAt)
	}
	_, errs = h.l.Extend(h.ctx, time.Millisecond, other)
	h.is(errs[0], ledger.ErrInvalid)
}

func expireGivesBack(t *testing.T, h *harness) {
	a := h.addMany(2)
	ls := h.claim("k", 2)
	h.pass(59 * time.Second)
	h.wantState(a[0].ID, ledger.StateLeased)
	h.pass(time.Second) // the lease expires exactly now
	it := h.wantState(a[0].ID, ledger.StateReady)
	if it.Losses != 1 || it.Failures != 0 || it.Agent != "" {
		t.Fatalf("%+v", it)
	}
	equal(t, "outcomes", h.outcomes(a[0].ID), []ledger.Outcome{ledger.OutcomeLost})
	second := h.claim("k", 2)
	if second[0].Attempt != 2 || second[0].LockID == ls[0].LockID {
		t.Fatalf("%+v", second[0])
	}
	h.is(h.finish(ls[0], ledger.Done(nil)), ledger.ErrLeaseLost)
	h.end(second[0], ledger.Done(nil))
	equal(t, "outcomes", h.outcomes(a[0].ID), []ledger.Outcome{ledger.OutcomeLost, ledger.OutcomeDone})
	// Expire takes a limited number, the longest expired first.
	h.addMany(30)
	h.claim("k", 40)
	h.clock.advance(time.Hour)
	n, err := h.l.Expire(h.ctx, 10)
	h.ok(err)
	equal(t, "one step", n, 10)
}

func promoteDue(t *testing.T, h *harness) {
	var items []ledger.NewItem
	for i := range 20 {
		items = append(items, ledger.NewItem{Kind: fmt.Sprintf("k%d", i%3), Key: fmt.Sprint(i),
			Due: start.Add(time.Duration(i+1) * time.Minute)})
	}
	h.add(items...)
	next, err := h.l.Promote(h.ctx, 100)
	h.ok(err)
	equal(t, "next due", next.UTC(), start.Add(time.Minute))
	h.clock.advance(5 * time.Minute)
	if it := h.item(h.add(items[0])[0].ID); it.State != ledger.StateReady {
		t.Fatalf("due and not yet promoted, it is %s", it.State)
	}
	next, err = h.l.Promote(h.ctx, 100)
	h.ok(err)
	equal(t, "next due", next.UTC(), start.Add(6*time.Minute))
	n := 0
	for i := range 3 {
		n += len(h.claim(fmt.Sprintf("k%d", i), 100))
	}
	equal(t, "promoted", n, 5)
	h.clock.advance(time.Hour)
	for range 10 {
		_, err = h.l.Promote(h.ctx, 2)
		h.ok(err)
	}
	n = 0
	for i := range 3 {
		n += len(h.claim(fmt.Sprintf("k%d", i), 100))
	}
	equal(t, "promoted in small steps", n, 15)
	next, err = h.l.Promote(h.ctx, 2)
	h.ok(err)
	if !next.IsZero() {
		t.Fatalf("nothing waits, yet next is %v", next)
	}
}

// promoteInTurn: a kind of which much is due keeps no other one waiting.
func promoteInTurn(t *testing.T, h *harness) {
	var items []ledger.NewItem
	for i := range 50 {
		items = append(items, ledger.NewItem{Kind: "a", Key: fmt.Sprint(i), Due: start.Add(time.Hour)})
	}
	h.add(append(items, ledger.NewItem{Kind: "z", Key: "z", Due: start.Add(time.Minute)})...)
	h.clock.advance(time.Hour)
	_, err := h.l.Promote(h.ctx, 10)
	h.ok(err)
	equal(t, "of the longest overdue kind", len(h.claim("z", 10)), 1)
	equal(t, "of the other one", len(h.claim("a", 100)), 9)
}

func attemptNumbersGoOn(t *testing.T, h *harness) {
	h.policy(ledger.Kind{Name: "k", Keep: time.Hour})
	id := h.addOne("x")
	last := int64(0)
	for round := range 4 {
		h.end(h.claimOne("k"), ledger.Release())
		ls := h.claimOne("k")
		if ls.Attempt != last+2 {
			t.Fatalf("round %d: attempt %d follows %d", round, ls.Attempt, last+1)
		}
		last = ls.Attempt
		h.end(ls, ledger.Done([]byte("x")))
		if round%2 == 0 {
			h.clock.advance(2 * time.Hour)
			n, err := h.l.Prune(h.ctx, 10)
			h.ok(err)
			equal(t, "pruned", n, 1)
		}
		_, err := h.l.Reopen(h.ctx, "test", ledger.IDs(id))
		h.ok(err)
		h.verify()
	}
}
