package storetest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/locks"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// restored: after a restoration no number is used again, no earlier lease is in force, and nothing else has changed.
func restored(t *testing.T, h *harness) {
	h.policy(ledger.Kind{Name: "mail", OnLost: ledger.OnLostDoubt})
	h.policy(ledger.Kind{Name: "few", Limits: scheduler.Limits{MaxRunning: 2}})
	lock := h.acquire("l", locks.Options{Holder: "a"})
	h.ok(h.locks().Release(h.ctx, lock))
	failed := h.addOne("failed")
	for range 2 {
		h.end(h.claimOne("k"), ledger.Fail(errors.New("no")))
		h.pass(time.Hour)
	}
	held := h.claimOne("k")
	h.add(ledger.NewItem{Kind: "mail", Key: "m"}, ledger.NewItem{Kind: "few", Key: "f"})
	started, limited := h.claimOne("mail"), h.claimOne("few")
	h.ok(h.l.Start(h.ctx, time.Minute, started)[0])
	last := h.addOne("last")

	done, lost, err := h.l.Restored(h.ctx, "operator:ann")
	h.ok(err)
	equal(t, "incarnation", done.Incarnation(), 2)
	equal(t, "leases", lost, int64(3))
	floor, ids := done.Above()
	for _, ls := range []*ledger.Lease{held, started, limited} {
		h.is(h.extend(ls)[0], ledger.ErrLeaseLost)
	}
	h.is(h.finish(held, ledger.Done(nil)), ledger.ErrLeaseLost)
	byToken, err := h.l.Lease(h.ctx, held.ID, held.Attempt)
	h.ok(err)
	h.is(h.finish(byToken, ledger.Done(nil)), ledger.ErrLeaseLost)
	_, err = h.l.Lease(h.ctx, held.ID, held.Attempt+1) // an attempt that the backup does not have
	h.is(err, ledger.ErrLeaseLost)
	h.wantState(started.ID, ledger.StateDoubt)
	h.is(h.finish(started, ledger.Done(nil)), ledger.ErrLeaseLost)
	if it := h.wantState(failed, ledger.StateReady); it.Failures != 2 || it.Losses != 1 || it.Attempt != held.Attempt ||
		it.Code != "ledger_restored" {
		t.Errorf("%+v", it)
	}
	journal, err := h.l.Journal(h.ctx, ledger.JournalQuery{Action: "restored", Limit: 1})
	h.ok(err)
	if len(journal) != 1 || journal[0].Actor != "operator:ann" || journal[0].Changed != 3 {
		t.Errorf("journal: %+v", journal)
	}

	again := h.claim("k", 2)
	equal(t, "claimed", len(again), 2)
	for _, ls := range append(again, h.claimOne("few")) {
		equal(t, "first attempt in the incarnation", ls.Attempt, floor+1)
		equal(t, "first attempt", ls.First(), ls.ID == last)
		byToken, err := h.l.Lease(h.ctx, ls.ID, ls.Attempt)
		h.ok(err)
		equal(t, "first attempt, by its token", byToken.First(), ls.ID == last)
		h.end(ls, ledger.Fail(errors.New("no")))
	}
	if it := h.item(failed); it.Failures != 3 || it.Attempt != floor+1 {
		t.Errorf("%+v", it)
	}
	h.ok(h.l.Decide(h.ctx, started.ID, "operator:ann", ledger.Done(nil)))
	equal(t, "verdict", h.item(started.ID).Attempt, floor+1)
	h.pass(time.Hour)
	if ls := h.claimOne("k"); ls.Attempt != floor+2 {
		t.Errorf("attempt %d after %d", ls.Attempt, floor+1)
	}
	if id := h.addOne("new"); id <= ids || id <= last {
		t.Errorf("id %d, must be above %d", id, ids)
	}
	if l := h.acquire("l", locks.Options{Holder: "b"}); l.Fence <= ids || l.Fence <= lock.Fence {
		t.Errorf("fence %d, must be above %d", l.Fence, ids)
	}
	h.restoredOnceMore(done)
}

// restoredOnceMore: the floors of a second restoration are above those of the first, whatever the clock shows.
func (h *harness) restoredOnceMore(first ledger.Schema) {
	h.t.Helper()
	h.clock.advance(-48 * time.Hour)
	second, _, err := h.l.Restored(h.ctx, "operator:ann")
	h.ok(err)
	floor, _ := second.Above()
	if before, _ := first.Above(); second.Incarnation() != 3 || floor <= before+100_000 {
		h.t.Errorf("%+v after %+v", second, first)
	}
	schema, err := h.store.Schema(h.ctx)
	h.ok(err)
	equal(h.t, "floors", schema.Floors, second.Floors)
	h.clock.advance(49 * time.Hour)
	if ls := h.claimOne("k"); ls.Attempt != floor+1 {
		h.t.Errorf("attempt %d, must be %d", ls.Attempt, floor+1)
	}
}

// restoredMany: a restoration ends all leases, however many they are.
func restoredMany(t *testing.T, h *harness) {
	const many = 1100
	h.addMany(many)
	for _, agent := range []string{"a", "b"} {
		ls, err := h.l.Claim(h.ctx, ledger.Claim{Kind: "k", Agent: agent, Limit: many / 2, TTL: time.Hour})
		h.ok(err)
		equal(t, "claimed", len(ls), many/2)
	}
	held, err := h.l.LeasedBy(h.ctx)
	h.ok(err)
	equal(t, "held", held, map[string]int64{"a": many / 2, "b": many / 2})
	h.clock.advance(-time.Minute) // the clock of another machine is behind
	_, lost, err := h.l.Restored(h.ctx, "operator:ann")
	h.ok(err)
	equal(t, "ended", lost, int64(many))
	left, err := h.l.LeasedBy(h.ctx)
	h.ok(err)
	equal(t, "leased", len(left), 0)
}

// openedNow is a store that was opened just now.
type openedNow struct {
	ledger.Store
	now ledger.Schema
}

func (s openedNow) Opened() ledger.Schema { return s.now }

// ofEnvironment: only programs of its environment begin anything in a ledger; what others have begun, they end.
func ofEnvironment(t *testing.T, h *harness) {
	id := h.addOne("a")
	held := h.claimOne("k")
	h.is(h.l.SetEnvironment(h.ctx, "operator:ann", strings.Repeat("x", 65)), ledger.ErrInvalid)
	h.ok(h.l.SetEnvironment(h.ctx, "operator:ann", "production"))

	open := func(environment string) *ledger.Ledger {
		s, err := h.store.Schema(h.ctx)
		h.ok(err)
		return ledger.New(openedNow{h.store, s}, ledger.Options{Environment: environment})
	}
	for _, other := range []string{"", "staging"} {
		l := open(other)
		_, err := l.Add(h.ctx, ledger.NewItem{Kind: "k", Key: "b"})
		h.is(err, ledger.ErrDenied)
		_, err = l.Claim(h.ctx, ledger.Claim{Agent: "w", Kind: "k", Limit: 1})
		h.is(err, ledger.ErrDenied)
		_, err = l.Retry(h.ctx, "operator:ann", ledger.Filter{IDs: []int64{id}})
		h.is(err, ledger.ErrDenied)
		h.is(l.Decide(h.ctx, id, "ann", ledger.Result{Outcome: ledger.OutcomeSkipped}), ledger.ErrDenied)
		_, err = locks.New(l).ForceRelease(h.ctx, "operator:ann", "lock")
		h.is(err, ledger.ErrDenied)
	}
	h.is(open("staging").RecordEnvironment(h.ctx), ledger.ErrDenied)
	h.ok(open("production").RecordEnvironment(h.ctx))
	_, err := open("production").Add(h.ctx, ledger.NewItem{Kind: "k", Key: "b"})
	h.ok(err)
	h.ok(h.finish(held, ledger.Done(nil)))

	h.ok(h.l.SetEnvironment(h.ctx, "operator:ann", ""))
	h.ok(open("").RecordEnvironment(h.ctx))
	_, err = open("").Add(h.ctx, ledger.NewItem{Kind: "k", Key: "c"})
	h.ok(err)
}
