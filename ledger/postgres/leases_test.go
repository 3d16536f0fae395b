package postgres

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// leaseBench is a ledger with n items whose tables can be counted.
type leaseBench struct {
	*testing.T
	*Store
	l   *ledger.Ledger
	now *time.Time
}

func newLeaseBench(t *testing.T, n int) leaseBench {
	t.Helper()
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	s, err := Connect(t.Context(), pgtest.URL(t), Options{Schema: pgtest.Schema(t), Now: func() time.Time { return now }})
	must.OK(t, err)
	t.Cleanup(func() { s.Close() })
	s.leaseSweeps.Every = 0
	l := ledger.New(s, ledger.Options{})
	for i := range n {
		must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: fmt.Sprint(i)}))
	}
	return leaseBench{t, s, l, &now}
}

func (b leaseBench) pass(d time.Duration) { *b.now = b.now.Add(d) }

func (b leaseBench) claim(n int, ttl time.Duration) []*ledger.Lease {
	b.Helper()
	got, err := b.l.Claim(b.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: n, TTL: ttl})
	if err != nil || len(got) != n {
		b.Fatalf("claimed %d of %d, %v", len(got), n, err)
	}
	return got
}

func (b leaseBench) extend(ttl time.Duration, leases ...*ledger.Lease) {
	b.T.Helper()
	_, errs := b.l.Extend(b.T.Context(), ttl, leases...)
	b.ok(errs...)
}

func (b leaseBench) end(result ledger.Result, leases ...*ledger.Lease) {
	b.Helper()
	var endings []ledger.Ending
	for _, ls := range leases {
		endings = append(endings, ledger.Ending{Lease: ls, Result: result})
	}
	b.ok(b.l.Finish(b.Context(), endings...)...)
}

func (b leaseBench) ok(errs ...error) {
	b.Helper()
	must.OK(b, errors.Join(errs...))
}

// count is the number that a query about the tables gives.
func (b leaseBench) count(query string) (n int) {
	b.Helper()
	b.ok(b.pool.QueryRow(b.Context(), b.render(query)).Scan(&n))
	return n
}

func (b leaseBench) expire(want int) {
	b.Helper()
	if n, err := b.l.Expire(b.Context(), 100); n != want || err != nil {
		b.Fatalf("%d expired, want %d, %v", n, want, err)
	}
}

const allLeases = `SELECT count(*) FROM {{S}}.ledger_leases`

// The row of a claim goes with the last of its items, however they end.
func TestLeasesGoWithTheirItems(t *testing.T) {
	b := newLeaseBench(t, 12)
	b.end(ledger.Done(nil), b.claim(3, time.Minute)...)
	if n := b.count(allLeases); n != 0 {
		t.Errorf("%d leases of items that ended together", n)
	}
	ls := b.claim(6, time.Minute)
	b.end(ledger.Done(nil), ls[0], ls[1])
	b.end(ledger.Result{Outcome: ledger.OutcomeReleased}, ls[2])
	b.end(ledger.Snooze(time.Hour, ""), ls[3])
	b.expire(0)
	if n := b.count(allLeases); n != 1 {
		t.Fatalf("%d leases while two items are held", n)
	}
	b.extend(time.Minute, ls[4], ls[5])
	b.end(ledger.Done([]byte("{}")), ls[5])
	b.end(ledger.Done(nil), ls[4])
	if held, err := b.l.LeasedBy(t.Context()); len(held) != 0 || err != nil {
		t.Errorf("agents hold %v, %v", held, err)
	}
	b.expire(0)
	if n := b.count(allLeases); n != 0 {
		t.Errorf("%d leases after the last of their items", n)
	}
	b.claim(2, time.Second)
	b.pass(time.Second)
	b.expire(2)
	b.expire(0)
	if n := b.count(allLeases); n != 0 {
		t.Errorf("%d leases that have expired", n)
	}
}

// A renewal of all that a claim still holds writes the row of the claim alone; one of a part reaches that part, and
// the rest expires as it would have.
func TestRenewalsOfClaims(t *testing.T) {
	b := newLeaseBench(t, 4)
	expiries := func() (at map[int64]time.Time) {
		at = map[int64]time.Time{}
		all, err := b.Holders(t.Context(), []int64{1, 2, 3, 4})
		b.ok(err)
		for _, r := range all {
			at[r.ItemID] = r.ExpiresAt
		}
		return at
	}
	const ownExpiries = `SELECT count(expires_at) FROM {{S}}.ledger_backlog`
	ls := b.claim(4, time.Minute)
	b.end(ledger.Done(nil), ls[3])
	b.extend(time.Hour, ls[:3]...)
	whole := expiries()
	for _, lease := range ls[:3] {
		if !whole[lease.ID].After(lease.ExpiresAt.Add(50 * time.Minute)) {
			t.Errorf("item %d expires at %s", lease.ID, whole[lease.ID])
		}
	}
	if n := b.count(ownExpiries); n != 0 || len(whole) != 3 {
		t.Errorf("%d rows were written for %d items", n, len(whole))
	}
	b.extend(2*time.Hour, ls[0])
	b.extend(time.Second, ls[1])
	part := expiries()
	if !part[ls[0].ID].After(whole[ls[0].ID]) || !part[ls[1].ID].Before(ls[1].ExpiresAt) ||
		!part[ls[2].ID].Equal(whole[ls[2].ID]) {
		t.Errorf("before %v, after %v", whole, part)
	}
	b.extend(3*time.Hour, ls[:3]...)
	for id, at := range expiries() {
		if !at.After(part[ls[0].ID]) {
			t.Errorf("item %d expires at %s when it was renewed again", id, at)
		}
	}
	b.extend(time.Second, ls[1])
	b.pass(time.Second)
	b.expire(1)
	b.extend(time.Second, ls[0], ls[2])
	b.expire(0)
	b.pass(time.Second)
	b.expire(2)
	if left := expiries(); len(left) != 0 {
		t.Errorf("still held: %v", left)
	}
}

// An item that is being taken from its holder is not renewed meanwhile.
func TestNoRenewalBesideExpiry(t *testing.T) {
	b := newLeaseBench(t, 2)
	ls := b.claim(2, time.Second)
	b.pass(time.Second)
	refs := []ledger.LeaseRef{{ItemID: ls[0].ID, LockID: ls[0].LockID}, {ItemID: ls[1].ID, LockID: ls[1].LockID}}
	b.ok(b.Update(t.Context(), nil, func(tx ledger.Tx) error {
		if recs, err := tx.LoadExpired(1); len(recs) != 1 || err != nil {
			return fmt.Errorf("%d have expired, %w", len(recs), err)
		}
		got, err := b.Renew(t.Context(), time.Hour, refs)
		if len(got) != 0 {
			t.Errorf("renewed %v", got)
		}
		return err
	}))
	b.expire(2)
}

// Items are taken only from leases that are split. Leases that are tended may make room for others in front.
func TestTakenFromSplitLeases(t *testing.T) {
	b := newLeaseBench(t, 0)
	items := make([]ledger.NewItem, 2100)
	for i := range items {
		items[i] = ledger.NewItem{Kind: "k", Key: fmt.Sprint(i)}
	}
	must.Do(t)(b.l.Add(t.Context(), items...))
	b.claim(1000, time.Hour)
	b.claim(1000, time.Hour)
	must.Do(t)(b.pool.Exec(t.Context(), b.render(`UPDATE {{S}}.ledger_leases SET split = true, due_at = leased_at`)))
	b.claim(100, time.Second)
	b.pass(time.Second)
	b.ok(b.Update(t.Context(), nil, func(tx ledger.Tx) error {
		recs, err := tx.LoadExpired(100)
		if len(recs) != 100 {
			t.Errorf("%d items were taken", len(recs))
		}
		return err
	}))
	if n := b.count(`SELECT count(*) FROM {{S}}.ledger_leases WHERE NOT split`); n != 0 {
		t.Errorf("items were taken from %d leases that may be renewed as a whole", n)
	}
}

// Leases that list many items and hold one each all expire.
func TestExpiryOfLeasesWithFewItemsLeft(t *testing.T) {
	b := newLeaseBench(t, 0)
	items := make([]ledger.NewItem, 3*550)
	for i := range items {
		items[i] = ledger.NewItem{Kind: "k", Key: fmt.Sprint(i)}
	}
	must.Do(t)(b.l.Add(t.Context(), items...))
	for range 3 {
		ls := b.claim(550, time.Second)
		b.end(ledger.Done(nil), ls[1:]...)
	}
	b.pass(time.Minute)
	total := 0
	for n := 1; n > 0; total += n {
		var err error
		n, err = b.l.Expire(t.Context(), 100)
		b.ok(err)
	}
	if total != 3 {
		t.Errorf("%d of 3 leases expired", total)
	}
}

// A kind with limits was tended when that is committed. One without limits is looked at again soon, however long it
// took: another process may set limits.
func TestKindsAreTended(t *testing.T) {
	b, g := newLeaseBench(t, 1), ledger.Grant{Claim: ledger.Claim{Kind: "k", Limit: 1}}
	limits := scheduler.Limits{MaxRunning: 1}
	b.ok(b.l.SetKind(t.Context(), "test", ledger.Kind{Name: "k", Limits: limits}))
	b.ok(b.Store.run(t.Context(), func(ctx context.Context, conn *pgx.Conn) error {
		c := &limitedClaim{claim: blankClaim(g), own: newOwn(ctx, b.Store, conn)}
		defer c.rollback()
		_, err := c.choose()
		return err
	}))
	if !b.lanes.due("k", limits, *b.now) {
		t.Error("tended by a transaction that was undone")
	}
	b.claim(1, time.Second)
	if b.lanes.due("k", limits, *b.now) {
		t.Error("not tended by a claim")
	}
	b.lanes.done("k", scheduler.Limits{}, *b.now, time.Minute)
	if !b.lanes.free("k", *b.now) || b.lanes.free("k", b.now.Add(wholeMost)) {
		t.Error("a kind without limits is passed over for too short or too long")
	}
}

// A transaction that has locked an item may end it, while others expire leases: they pass over the item. If they locked
// its row of the backlog and then waited for the item, each would wait for the other.
func TestExpiryPassesOverLockedItems(t *testing.T) {
	b := newLeaseBench(t, 2)
	b.ok(b.l.SetKind(t.Context(), "test", ledger.Kind{Name: "k", OnLost: ledger.OnLostDoubt}))
	ls := b.claim(2, time.Second)
	b.ok(b.l.Start(t.Context(), time.Second, ls...)...)
	b.pass(time.Minute)
	tx, err := b.pool.Begin(t.Context())
	b.ok(err)
	defer tx.Rollback(t.Context())
	must.Do(t)(tx.Exec(t.Context(), b.render(`SELECT FROM {{S}}.ledger_items WHERE id = $1 FOR NO KEY UPDATE`), ls[0].ID))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if n, err := b.l.Expire(ctx, 10); n != 1 || err != nil {
		t.Errorf("%d expired, %v", n, err)
	}
	b.ok(b.l.FinishTx(ctx, Wrap(tx), ledger.Ending{Lease: ls[0], Result: ledger.Done(nil)}))
	b.ok(tx.Commit(ctx))
	b.expire(0)
}
