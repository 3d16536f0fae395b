package storetest

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/ledger"
)

// leasesOf: a lease found by its full token has exactly the rights of the original lease.
func leasesOf(t *testing.T, h *harness) {
	ids := []int64{h.addOne("a"), h.addOne("b")}
	first := h.claim("k", 2)
	same, errs := h.l.LeasesOf(h.ctx, first[1].FullToken(), first[0].FullToken(), first[1].FullToken())
	for i, want := range []*ledger.Lease{first[1], first[0], first[1]} {
		h.ok(errs[i])
		got := same[i]
		equal(t, "lease", []any{got.FullToken(), got.Agent, got.StartedAt, got.ExpiresAt, got.Kind, got.Key},
			[]any{want.FullToken(), want.Agent, want.StartedAt, want.ExpiresAt, want.Kind, want.Key})
	}
	h.clock.advance(30 * time.Second)
	ends, errs := h.l.Extend(h.ctx, time.Minute, same[:2]...)
	for i := range 2 {
		h.ok(errs[i])
		equal(t, "ends", ends[i], start.Add(90*time.Second))
	}

	h.pass(2 * time.Minute)
	second := h.claimOne("k")
	of := first[0]
	if of.ID != second.ID {
		of = first[1]
	}
	lost, errs := h.l.LeasesOf(h.ctx, of.FullToken())
	h.ok(errs[0])
	equal(t, "the item now", []any{lost[0].State, lost[0].Item.Agent, lost[0].Attempt}, []any{ledger.StateLeased, "a",
		int64(1)})
	inForce, errs := h.l.LeasesHeld(h.ctx, of.FullToken(), second.FullToken(), "x")
	h.is(errs[0], ledger.ErrLeaseLost)
	h.ok(errs[1])
	h.is(errs[2], ledger.ErrInvalid)
	equal(t, "the lease in force", inForce[1].Agent, second.Agent)
	h.is(h.finish(lost[0], ledger.Done(nil)), ledger.ErrLeaseLost)
	ends, errs = h.l.Extend(h.ctx, time.Minute, lost[0])
	h.is(errs[0], ledger.ErrLeaseLost)
	equal(t, "the end of what is lost", ends[0], time.Time{})
	mine, errs := h.l.LeasesOf(h.ctx, second.FullToken())
	h.ok(errs[0])
	h.end(mine[0], ledger.Done([]byte("x")))
	mine, errs = h.l.LeasesOf(h.ctx, second.FullToken())
	h.ok(errs[0])
	h.end(mine[0], ledger.Done([]byte("x"))) // the first answer was lost

	invented := *second
	invented.LockID = uuid.New()
	other := *first[0]
	other.ID = ids[1] + 1000
	_, errs = h.l.LeasesOf(h.ctx, invented.FullToken(), other.FullToken(), second.Token(), "x")
	h.is(errs[0], ledger.ErrLeaseLost)
	h.is(errs[1], ledger.ErrLeaseLost)
	h.is(errs[2], ledger.ErrInvalid)
	h.is(errs[3], ledger.ErrInvalid)

	h.add(ledger.NewItem{Kind: "daily", Key: "x", Every: "day"}) // a recurring item does not end by the fast path
	daily, errs := h.l.LeasesOf(h.ctx, h.claimOne("daily").FullToken())
	h.ok(errs[0])
	h.end(daily[0], ledger.Done(nil))
	h.wantState(daily[0].ID, ledger.StateWaiting)
}

// unclaim: Unclaim hands back the leases of a claim whose answer was lost, except those that a later claim resumed.
func unclaim(t *testing.T, h *harness) {
	h.addMany(3)
	got := h.claim("k", 2)
	h.end(got[1], ledger.Done(nil))
	h.clock.advance(time.Second)
	again, err := h.l.Claim(h.ctx, ledger.Claim{Kind: "k", Agent: "a", Limit: 2, Resume: true})
	h.ok(err)
	h.ok(h.l.Unclaim(h.ctx, got...)) // one was resumed, one has ended
	h.wantState(got[0].ID, ledger.StateLeased)
	h.wantState(got[1].ID, ledger.StateDone)
	h.ok(h.l.Unclaim(h.ctx, again[1]))
	it := h.wantState(again[1].ID, ledger.StateReady)
	equal(t, "counters", it.Failures+it.Crashes+it.Losses, 0)
	equal(t, "outcomes", h.outcomes(again[1].ID), []ledger.Outcome{ledger.OutcomeReleased})
	h.is(h.finish(again[1], ledger.Done(nil)), ledger.ErrLeaseLost)
	h.end(again[0], ledger.Done(nil))

	h.addOne("odd") // databases keep whole microseconds
	odd, err := h.l.Claim(h.ctx, ledger.Claim{Kind: "k", Agent: "b", Limit: 3, TTL: 100 * time.Second / 3})
	h.ok(err)
	h.ok(h.l.Unclaim(h.ctx, odd...))
	for _, ls := range odd {
		h.wantState(ls.ID, ledger.StateReady)
	}
}

// leaseByToken: a lease found by id and attempt has exactly the rights of the original lease.
func leaseByToken(t *testing.T, h *harness) {
	byToken := func(token string) (*ledger.Lease, error) {
		id, attempt, err := ledger.ParseToken(token)
		h.ok(err)
		return h.l.Lease(h.ctx, id, attempt)
	}
	finish := func(token string, r ledger.Result) error {
		ls, err := byToken(token)
		h.ok(err)
		return h.finish(ls, r)
	}
	id := h.addOne("a")
	first := h.claimOne("k")
	same, err := byToken(first.Token())
	h.ok(err)
	equal(t, "token", same.Token(), first.Token())
	equal(t, "lock_id", same.LockID, first.LockID)
	equal(t, "agent", same.Agent, first.Agent)
	equal(t, "started", same.StartedAt, first.StartedAt)
	equal(t, "expires", same.ExpiresAt, first.ExpiresAt)
	_, err = h.l.Lease(h.ctx, id, 2)
	h.is(err, ledger.ErrLeaseLost)
	_, err = h.l.Lease(h.ctx, id+1, 1)
	h.is(err, ledger.ErrNotFound)

	h.pass(2 * time.Minute)
	second := h.claimOne("k")
	h.is(finish(first.Token(), ledger.Done(nil)), ledger.ErrLeaseLost)
	h.wantState(id, ledger.StateLeased)
	stale := *same // looked up before the second claim
	h.is(h.finish(&stale, ledger.Done(nil)), ledger.ErrLeaseLost)
	h.ok(finish(second.Token(), ledger.Done([]byte("x"))))
	h.ok(finish(second.Token(), ledger.Done([]byte("x")))) // the first answer was lost
	h.is(finish(second.Token(), ledger.Fail(errTest)), ledger.ErrLeaseLost)
	h.is(finish(second.Token(), ledger.Done([]byte("y"))), ledger.ErrLeaseLost) // this output is not the one that is kept
	h.wantState(id, ledger.StateDone)

	mail := h.mails(1)[0] // started, lost, and reported late
	h.start(mail)
	h.pass(2 * time.Minute)
	h.wantState(mail.ID, ledger.StateDoubt)
	h.ok(finish(mail.Token(), ledger.Done(nil)))
	h.wantState(mail.ID, ledger.StateDone)
	verdict, err := h.l.Lease(h.ctx, mail.ID, 2)
	if err == nil && verdict.LockID != mail.LockID {
		t.Errorf("a verdict is no claim: %+v", verdict)
	}
	for _, bad := range []string{"", "17", "17.", ".3", "17.0", "0.1", "-1.1", "17.3.1", "17.03", "+17.3", " 17.3", "a.b",
		"99999999999999999999.1"} {
		_, _, err := ledger.ParseToken(bad)
		h.is(err, ledger.ErrInvalid)
	}
}
