package postgres_test

import (
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/storetest"
)

func TestCompare(t *testing.T) { storetest.Compare(t, places(t)) }

func TestCompareLimits(t *testing.T) { storetest.CompareLimits(t, places(t)) }

// places makes places that use the same schema one after the other, on a pool that can break.
func places(t testing.TB) storetest.NewPlace {
	b := newBreaker(t)
	reused := &schemas{t: t, pool: pgtest.Pool(t)}
	schema := reused.take(t)
	return func(t testing.TB, now func() time.Time) storetest.Place { // the place before is closed
		reused.empty(t, schema)
		return storetest.Place{
			Open: func() (ledger.Store, error) {
				return postgres.Open(t.Context(), b.Pool, postgres.Options{Schema: schema, Now: now})
			},
			Begin: func() (ledger.Conn, func(bool) error, error) {
				tx, err := b.Begin(t.Context())
				return postgres.Wrap(tx), func(commit bool) error {
					if commit {
						return tx.Commit(t.Context())
					}
					return tx.Rollback(t.Context())
				}, err
			},
			Faults: faults,
			Break:  b.Break,
			Lags:   true,
		}
	}
}
