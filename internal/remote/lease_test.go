package remote

import (
	"errors"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
)

// TestClaimHolds: a lease over HTTP is trusted by the clock of its holder, carries the payload byte for byte, and ends
// with an output that is no JSON.
func TestClaimHolds(t *testing.T) {
	r := newRig(t, everything)
	ctx := t.Context()
	payload := []byte("{\"a\" : 1,\n\"b\":\"<\u202e>\"}")
	_, err := r.l.Add(ctx, ledger.NewItem{Kind: "page", Key: "k", Payload: payload})
	r.ok(err)
	leases, held, err := r.http.ClaimWithin(ctx, ledger.Claim{Kind: "page", Agent: "w", Limit: 5, TTL: 10 * time.Second})
	r.ok(err)
	ls := leases[0]
	if left := ls.Remaining(); len(leases) != 1 || held.Full || left <= 0 || left > 9*time.Second {
		t.Errorf("%d leases, %s left, %+v", len(leases), left, held)
	}
	if string(ls.Payload) != string(payload) || ls.IdempotencyKey() != "page/1/1" {
		t.Errorf("payload %q, key %q", ls.Payload, ls.IdempotencyKey())
	}
	extend := func(want error) {
		t.Helper()
		ends, errs := r.http.Extend(ctx, time.Minute, ls)
		it, err := r.l.Get(ctx, ls.ID)
		r.ok(err)
		if !errors.Is(errs[0], want) || !ends[0].Equal(it.ExpiresAt) {
			t.Errorf("extended until %s, %v; want %s, %v", ends[0], errs[0], it.ExpiresAt, want)
		}
	}
	r.ok(r.http.Held(ctx, ls)[0])
	r.ok(r.http.Start(ctx, time.Minute, ls)[0])
	extend(nil)
	must.Do(t)(r.l.Cancel(ctx, "test", ledger.IDs(ls.ID)))
	if errs := r.http.Held(ctx, ls); !errors.Is(errs[0], ledger.ErrCancelled) {
		t.Errorf("the item was cancelled: %v", errs[0])
	}
	extend(ledger.ErrCancelled)
	emit := ledger.NewItem{Kind: "next", Key: "n", Payload: payload}
	end := []ledger.Ending{{Lease: ls, Result: ledger.Done([]byte("\xff"), emit)}}
	r.ok(r.http.Finish(ctx, end...)[0])
	r.ok(r.http.Finish(ctx, end...)[0]) // its answer was lost
	attempts, err := r.l.Attempts(ctx, ls.ID)
	r.ok(err)
	emitted, err := r.l.Get(ctx, 2)
	r.ok(err)
	if string(attempts[0].Output) != "\xff" || end[0].State != ledger.StateDone ||
		string(emitted.Payload) != string(payload) {
		t.Errorf("output %q, %+v, emitted %q", attempts[0].Output, end[0], emitted.Payload)
	}
	extend(ledger.ErrLeaseLost)
	must.Do(t)(r.l.Reopen(ctx, "test", ledger.IDs(ls.ID)))
	leases, _, err = r.http.ClaimWithin(ctx, ledger.Claim{Kind: "page", Agent: "w", Limit: 5, TTL: 10 * time.Second})
	r.ok(err)
	if again := leases[0]; again.Attempt != 2 || !again.First() {
		t.Errorf("attempt %d after it was opened again; the first: %v", again.Attempt, again.First())
	}
}
