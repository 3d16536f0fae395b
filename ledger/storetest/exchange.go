package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

var exchangeCases = []storeCase{
	{"FinishAndClaim", finishAndClaim}, {"FinishAndClaimTheRest", finishAndClaimTheRest},
}

// exchange ends a lease and claims up to n items of a kind in one call.
func (h *harness) exchange(ls *ledger.Lease, r ledger.Result, kind string, n int) (got []*ledger.Lease, ended error) {
	h.t.Helper()
	e := []ledger.Ending{{Lease: ls, Result: r}}
	errs, got, _, err := h.l.FinishAndClaim(h.ctx, ledger.Claim{Kind: kind, Agent: "a", Limit: n}, e...)
	h.ok(err)
	if errs[0] == nil && e[0].Recorded == "" {
		h.t.Fatal("an end without what was recorded")
	}
	return got, errs[0]
}

// finishAndClaim: one call ends an item with any result and claims the next one, of any kind.
func finishAndClaim(t *testing.T, h *harness) {
	var ids []int64
	for i := range 8 {
		ids = append(ids, h.add(ledger.NewItem{Kind: "k", Key: fmt.Sprint(i)})[0].ID)
	}
	h.addOne("last")
	now := h.claimOne("k")
	for i, c := range []struct {
		result ledger.Result
		state  ledger.State
	}{
		{ledger.Done(nil), ledger.StateDone},
		{ledger.Done([]byte("out")), ledger.StateDone},
		{ledger.Skip("nothing to do"), ledger.StateDone},
		{ledger.Fail(errTest), ledger.StateWaiting},
		{ledger.Permanent(errTest), ledger.StateDead},
		{ledger.Snooze(time.Hour, ""), ledger.StateWaiting},
		{ledger.Done(nil, ledger.NewItem{Kind: "child", Key: "x"}), ledger.StateDone},
	} {
		got, ended := h.exchange(now, c.result, "k", 1)
		h.ok(ended)
		h.wantState(ids[i], c.state)
		if len(got) != 1 || got[0].ID != ids[i+1] || got[0].Attempt != 1 || got[0].Remaining() < 50*time.Second {
			t.Fatalf("after %d: %+v", i, got)
		}
		h.wantState(got[0].ID, ledger.StateLeased)
		now = got[0]
	}
	got, ended := h.exchange(now, ledger.Done(nil), "k", 5)
	h.ok(ended)
	if len(got) != 1 || got[0].Key != "last" {
		t.Fatalf("%+v", got)
	}
	got, ended = h.exchange(got[0], ledger.Done(nil), "none", 5)
	h.ok(ended)
	equal(t, "claimed of an empty kind", len(got), 0)
}

// finishAndClaimTheRest: one call ends several leases. A cancelled and a lost one among them do not take the fast
// path.
func finishAndClaimTheRest(t *testing.T, h *harness) {
	h.addMany(5)
	leases := h.claim("k", 4)
	_, err := h.l.Cancel(h.ctx, "test", ledger.IDs(leases[1].ID))
	h.ok(err)
	e := make([]ledger.Ending, len(leases))
	for i, ls := range leases {
		e[i] = ledger.Ending{Lease: ls, Result: ledger.Done(nil)}
	}
	lost := *leases[3]
	lost.LockID[0]++
	e[3].Lease = &lost
	errs, got, _, err := h.l.FinishAndClaim(h.ctx, ledger.Claim{Kind: "k", Agent: "a", Limit: 5}, e...)
	h.ok(err)
	for i, want := range []error{nil, nil, nil, ledger.ErrLeaseLost} {
		h.is(errs[i], want)
	}
	equal(t, "claimed", len(got), 1)
	for i, want := range []ledger.State{ledger.StateDone, ledger.StateDone, ledger.StateDone, ledger.StateLeased} {
		h.wantState(leases[i].ID, want)
	}
	errs = h.l.Finish(h.ctx, e[:3]...) // the answer got lost
	for _, err := range errs {
		h.ok(err)
	}
	bad := ledger.Claim{Kind: "k", Limit: 1}
	errs, got, _, err = h.l.FinishAndClaim(h.ctx, bad, ledger.Ending{Lease: got[0], Result: ledger.Done(nil)})
	h.is(err, ledger.ErrInvalid)
	h.ok(errs[0])
	equal(t, "claimed without an agent", len(got), 0)
}
