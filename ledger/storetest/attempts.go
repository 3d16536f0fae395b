package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
)

// attemptTimes: an attempt keeps its due time, its start mark and the number of renewals, however it ends and however
// its lease is renewed.
func attemptTimes(t *testing.T, h *harness) {
	h.policy(ledger.Kind{Name: "k", OnLost: ledger.OnLostDoubt})
	added := h.addMany(4)
	h.clock.advance(5 * time.Second)
	ls := h.claim("k", 4)
	renew := func(of ...*ledger.Lease) {
		h.clock.advance(time.Second)
		h.ok(errors.Join(h.extend(of...)...))
	}
	renew(ls...) // the lease as a whole
	renew(ls...)
	h.clock.advance(time.Second)
	for _, err := range h.l.Start(h.ctx, time.Minute, ls[0], ls[1]) {
		h.ok(err)
	}
	renew(ls[0], ls[2]) // each item by itself
	h.end(ls[0], ledger.Done(nil))
	h.end(ls[1], ledger.RetryAfter(time.Second, errTest))
	h.end(ls[2], ledger.Done([]byte("x")))
	began := start.Add(8 * time.Second)
	for i, want := range []ledger.Attempt{{Renewals: 3, StartedAt: began}, {Renewals: 2, StartedAt: began},
		{Renewals: 3}} {
		as, err := h.l.Attempts(h.ctx, added[i].ID)
		h.ok(err)
		want.DueAt, want.LeasedAt = start, start.Add(5*time.Second)
		equal(t, "attempt", ledger.Attempt{Renewals: as[0].Renewals, StartedAt: as[0].StartedAt, DueAt: as[0].DueAt,
			LeasedAt: as[0].LeasedAt}, want)
	}
	h.end(ls[3], ledger.Fail(errTest))
	h.clock.advance(time.Minute)
	for _, again := range h.claim("k", 2) { // the next attempt starts at 0 renewals, and its due time is that of the retry
		h.end(again, ledger.Done(nil))
		as, err := h.l.Attempts(h.ctx, again.ID)
		h.ok(err)
		equal(t, "renewals", as[1].Renewals, 0)
		equal(t, "started", as[1].StartedAt, time.Time{})
		equal(t, "due", as[1].DueAt, again.Due)
	}
	id := h.add(ledger.NewItem{Kind: "k", Key: "decided"})[0].ID
	h.end(h.claimOne("k"), ledger.Doubt(errTest))
	h.ok(h.l.Decide(h.ctx, id, "ann", ledger.Done(nil)))
	as, err := h.l.Attempts(h.ctx, id)
	h.ok(err)
	equal(t, "a verdict was not due", as[1].DueAt, time.Time{})
}

// cancelReason: the reason of a cancel is the error of the cancelled attempt, also if it was running. A running
// attempt that completes nevertheless has no error.
func cancelReason(t *testing.T, h *harness) {
	added := h.addMany(4)
	ls := h.claim("k", 3)
	cancel := func(reason string) {
		t.Helper()
		_, err := h.l.Cancel(h.ctx, "ann", ledger.Filter{Kinds: []string{"k"}}, ledger.WithReason(reason))
		h.ok(err)
	}
	cancel("the site is gone")
	cancel("another reason") // the first reason stays
	h.end(ls[0], ledger.Fail(errTest))
	h.end(ls[1], ledger.Release())
	h.end(ls[2], ledger.Done(nil))
	for i, want := range []string{"the site is gone", "the site is gone", "", "the site is gone"} {
		as, err := h.l.Attempts(h.ctx, added[i].ID)
		h.ok(err)
		equal(t, "error", as[0].Error, want)
	}
}

// placeForRound: a priority for one round is reset when the round ends.
func placeForRound(t *testing.T, h *harness) {
	first, round := ledger.WithPriority(bounds.MinPriority), ledger.ThisRound()
	daily := h.add(ledger.NewItem{Kind: "k", Key: "daily", Every: "day", Priority: 1})[0].ID
	once := h.add(ledger.NewItem{Kind: "k", Key: "once"})[0].ID
	priorities := func(what string, want ...int16) {
		t.Helper()
		equal(t, what, []int16{h.item(daily).Priority, h.item(once).Priority}, want)
	}
	for range 2 { // the second call must not remember the priority of the first as the usual one
		n, err := h.l.Place(h.ctx, "ann", ledger.Filter{}, bounds.MinPriority, round)
		h.ok(err)
		equal(t, "placed", n, 2)
	}
	priorities("placed", bounds.MinPriority, bounds.MinPriority)
	for _, ls := range h.claim("k", 2) {
		h.end(ls, ledger.Release())
	}
	priorities("the round goes on", bounds.MinPriority, bounds.MinPriority)
	for _, ls := range h.claim("k", 2) {
		h.end(ls, ledger.Permanent(errTest))
	}
	priorities("failed for good", 1, 0)
	_, err := h.l.Retry(h.ctx, "ann", ledger.Filter{}, first, round)
	h.ok(err)
	priorities("retried", bounds.MinPriority, bounds.MinPriority)
	for _, ls := range h.claim("k", 2) {
		h.end(ls, ledger.Done(nil))
	}
	equal(t, "the next round", h.item(daily).Priority, 1)
	_, err = h.l.Reopen(h.ctx, "ann", ledger.Filter{}, first)
	h.ok(err)
	for _, ls := range h.claim("k", 2) {
		h.end(ls, ledger.Done(nil))
	}
	equal(t, "kept in later rounds", h.item(daily).Priority, bounds.MinPriority)
}
