package storetest

import (
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// leaseByToken: who kept only the token of a claim may do with it what its holder may, and no more.
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
	id := h.one("a")
	first := h.take("k")
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
	second := h.take("k")
	h.is(finish(first.Token(), ledger.Done(nil)), ledger.ErrLeaseLost)
	h.state(id, ledger.StateLeased)
	stale := *same // looked up before it was handed on
	h.is(h.finish(&stale, ledger.Done(nil)), ledger.ErrLeaseLost)
	h.ok(finish(second.Token(), ledger.Done([]byte("x"))))
	h.ok(finish(second.Token(), ledger.Done([]byte("x")))) // the answer got lost
	h.is(finish(second.Token(), ledger.Fail(errTest)), ledger.ErrLeaseLost)
	h.state(id, ledger.StateDone)

	mail := h.mails(1)[0] // started, lost, and reported after all
	h.start(mail)
	h.pass(2 * time.Minute)
	h.state(mail.ID, ledger.StateDoubt)
	h.ok(finish(mail.Token(), ledger.Done(nil)))
	h.state(mail.ID, ledger.StateDone)
	verdict, err := h.l.Lease(h.ctx, mail.ID, 2)
	if err == nil && verdict.LockID != mail.LockID {
		t.Errorf("a verdict is no claim: %+v", verdict)
	}
	for _, bad := range []string{"", "17", "17.", ".3", "17.0", "0.1", "-1.1", "17.3.1", "17.03", "+17.3", " 17.3", "a.b", "99999999999999999999.1"} {
		_, _, err := ledger.ParseToken(bad)
		h.is(err, ledger.ErrInvalid)
	}
}
