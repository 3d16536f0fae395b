package postgres_test

import (
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/storetest"
)

func TestManyKeysAreHeldBack(t *testing.T) {
	s, err := postgres.Open(t.Context(), pgtest.Pool(t), postgres.Options{Schema: pgtest.Schema(t)})
	must.OK(t, err)
	defer s.Close()
	storetest.ManyKeysAreHeldBack(t, ledger.New(s, ledger.Options{}))
}

func TestRatesAreForgotten(t *testing.T) {
	pool, schema, now := pgtest.Pool(t), pgtest.Schema(t), time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	s, err := postgres.Open(t.Context(), pool, postgres.Options{Schema: schema, Now: func() time.Time { return now }})
	must.OK(t, err)
	defer s.Close()
	storetest.RatesAreForgotten(t, ledger.New(s, ledger.Options{}), func(d time.Duration) { now = now.Add(d) },
		func() (n int) {
			must.OK(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM `+schema+`.ledger_lanes`).Scan(&n))
			return n
		}, 1)
}
