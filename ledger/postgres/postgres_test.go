package postgres_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStore(t *testing.T) { t.Parallel(); storetest.Run(t, opener(t)) }

// opener opens empty ledgers, each in a schema of its own, on one pool.
func opener(t testing.TB) storetest.Open {
	pool := pgtest.Pool(t)
	reused := &schemas{t: t, pool: pool}
	return func(t testing.TB, now func() time.Time) ledger.Store {
		t.Helper()
		s, err := postgres.Open(t.Context(), pool, postgres.Options{Schema: reused.take(t), Now: now})
		must.OK(t, err)
		t.Cleanup(func() { s.Close() })
		return s
	}
}
