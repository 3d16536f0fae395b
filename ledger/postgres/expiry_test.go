package postgres_test

import (
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
)

// A transaction takes the leases that expired before its own time, since it records that time as their end. It leaves
// a lease that expires while it is open.
func TestExpiryByTheTransactionsClock(t *testing.T) {
	s, err := postgres.Connect(t.Context(), pgtest.URL(t), postgres.Options{Schema: pgtest.Schema(t)})
	must.OK(t, err)
	defer s.Close()
	l := ledger.New(s, ledger.Options{})
	must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "x"}))
	ls, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: 1, TTL: time.Second})
	if err != nil || len(ls) != 1 {
		t.Fatalf("%d leases, %v", len(ls), err)
	}
	look := func(wait bool) (n int) {
		err := s.Update(t.Context(), nil, func(tx ledger.Tx) error {
			now := tx.Now()
			for tick := time.Tick(20 * time.Millisecond); wait && !now.After(ls[0].ExpiresAt); <-tick {
				if now, err = s.Now(t.Context()); err != nil {
					return err
				}
			}
			recs, err := tx.LoadExpired(10)
			n = len(recs)
			return err
		})
		must.OK(t, err)
		return n
	}
	if n := look(true); n != 0 {
		t.Errorf("a transaction that began before the lease ran out takes %d", n)
	}
	if n := look(false); n != 1 {
		t.Errorf("one that began afterwards takes %d", n)
	}
}
