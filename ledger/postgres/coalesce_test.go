package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
)

var claimOfK = ledger.Claim{Kind: "k"}

// coalesced runs claims like c with these limits as one statement, of the agents a0, a1 and so on, and returns the
// leases of each. meanwhile, if not nil, runs when all wait.
func coalesced(ctx context.Context, t testing.TB, l *ledger.Ledger, s *Store, c ledger.Claim, meanwhile func(),
	limits ...int) (got [][]*ledger.Lease, errs []error) {
	t.Helper()
	at := sameItems{kind: c.Kind, shard: c.Shard, ttl: time.Minute}
	for range claimsAtOnce { // as if two statements ran
		s.claims.enter(at, nil)
	}
	got, errs = make([][]*ledger.Lease, len(limits)), make([]error, len(limits))
	var claims sync.WaitGroup
	for i, limit := range limits {
		c := c
		c.Agent, c.Limit = fmt.Sprint("a", i), limit
		claims.Go(func() { got[i], errs[i] = l.Claim(ctx, c) })
		s.waits(t, at, i+1)
	}
	if meanwhile != nil {
		meanwhile()
	}
	s.claimWaiting(at, s.claims.next(at))
	s.claims.next(at)
	claims.Wait()
	if len(s.claims.of) > 0 {
		t.Errorf("claims run or wait still: %v", s.claims.of)
	}
	return got, errs
}

// waits waits until so many claims wait.
func (s *Store) waits(t testing.TB, at sameItems, n int) {
	t.Helper()
	must.Eventually(t, fmt.Sprint(n, " claims wait"), func() bool {
		s.claims.mu.Lock()
		defer s.claims.mu.Unlock()
		return len(s.claims.of[at].waiting) == n
	})
}

// Coalesced claims have leases of their own: each its items, its agent and a row. The row goes with its last item.
func TestCoalescedClaims(t *testing.T) {
	b := newLeaseBench(t, 6)
	got, errs := coalesced(t.Context(), t, b.l, b.Store, claimOfK, nil, 1, 3, 1, 4, 2)
	b.ok(errs...)
	var all []int64
	for i, want := range []int{1, 3, 1, 1, 0} { // six items, in the order of the claims
		if len(got[i]) != want {
			t.Fatalf("claim %d leased %d items, want %d", i, len(got[i]), want)
		}
		for _, ls := range got[i] {
			if all = append(all, ls.ID); ls.Agent != fmt.Sprint("a", i) || ls.LockID != got[i][0].LockID || ls.Resumed {
				t.Errorf("claim %d: lease %+v", i, ls)
			}
		}
	}
	if slices.Sort(all); len(slices.Compact(all)) != 6 {
		t.Errorf("leased %v", all)
	}
	if n := b.count(allLeases); n != 4 {
		t.Errorf("%d rows of leases, want one for each claim that leased any", n)
	}
	b.extend(time.Minute, got[1]...)
	b.end(ledger.Done(nil), got[0]...)
	b.end(ledger.Release(), got[1]...)
	b.expire(0) // removes rows of leases, too
	if n := b.count(allLeases); n != 2 {
		t.Errorf("%d rows of leases, want those of the claims that hold items", n)
	}
	if again := b.claim(3, time.Minute); again[0].Attempt != 2 {
		t.Errorf("attempt %d, want 2", again[0].Attempt)
	}
	b.end(ledger.Done(nil), slices.Concat(got[2:]...)...)
}

// An item that has to be claimed alone goes to one claim. The others claim once more, and get what comes behind it.
func TestCoalescedClaimsAlone(t *testing.T) {
	for name, place := range map[string]int{"first": 0, "second": 1, "last": 2} {
		t.Run(name, func(t *testing.T) {
			b := newLeaseBench(t, 3)
			must.Do(t)(b.pool.Exec(t.Context(), b.render(`UPDATE {{S}}.ledger_backlog SET alone = true
WHERE item_id = (SELECT item_id FROM {{S}}.ledger_backlog ORDER BY due_at, item_id LIMIT 1 OFFSET $1)`), place))
			got, errs := coalesced(t.Context(), t, b.l, b.Store, claimOfK, nil, 1, 1, 1)
			b.ok(errs...)
			for i, leases := range got {
				if len(leases) != 1 {
					t.Errorf("claim %d leased %d items, want 1", i, len(leases))
				}
			}
		})
	}
}

// A claim that is cancelled while it waits leases nothing. The others go on without it.
func TestCoalescedClaimsCancelled(t *testing.T) {
	b := newLeaseBench(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	at := sameItems{kind: "k", ttl: time.Minute}
	_, errs := coalesced(ctx, t, b.l, b.Store, claimOfK, func() {
		cancel()
		b.waits(t, at, 0)
	}, 1)
	if !errors.Is(errs[0], context.Canceled) {
		t.Errorf("error %v", errs[0])
	}
	b.claim(1, time.Minute)
}

// A claim that is cancelled before its statement begins leases nothing either. When the time of one claim is over, the
// statement ends for all: with a later answer, items would be leased to a caller that has gone.
func TestCoalescedClaimsGone(t *testing.T) {
	b := newLeaseBench(t, 2)
	gone, cancel := context.WithCancel(t.Context())
	late, end := context.WithTimeout(t.Context(), 0)
	defer end()
	claims := []*waitingClaim{}
	run := func(contexts ...context.Context) {
		claims = nil
		for i, ctx := range contexts {
			claims = append(claims, &waitingClaim{ctx: ctx, g: ledger.Grant{LockID: uuid.New(), Claim: ledger.Claim{
				Kind: "k", Agent: fmt.Sprint("a", i), Limit: 1, TTL: time.Minute}}})
		}
		b.claimTogether(claims)
	}
	cancel()
	run(gone, t.Context())
	if n := len(claims[0].got.Records); n > 0 || claims[1].err != nil || claims[1].got.Records[0].ID != 1 {
		t.Errorf("leased %d items to a claim that has gone, %v, %v", n, claims[1].got.Records, claims[1].err)
	}
	if run(gone, gone); !errors.Is(claims[1].err, context.Canceled) {
		t.Errorf("error of claims that have all gone: %v", claims[1].err)
	}
	if run(late, t.Context()); !errors.Is(claims[1].err, ledger.ErrUnavailable) {
		t.Errorf("error of a claim beside one whose time is over: %v", claims[1].err)
	}
	b.claim(1, time.Minute)
}

// If the shared statement fails, each claim gets the error.
func TestCoalescedClaimsFail(t *testing.T) {
	b := newLeaseBench(t, 2)
	_, errs := coalesced(t.Context(), t, b.l, b.Store, claimOfK, func() { b.Store.Close() }, 1, 1)
	for i, err := range errs {
		if !errors.Is(err, ledger.ErrInvalid) {
			t.Errorf("claim %d: %v", i, err)
		}
	}
}
