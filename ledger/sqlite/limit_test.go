package sqlite_test

import (
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/ledger/storetest"
)

func TestManyKeysAreHeldBack(t *testing.T) {
	storetest.ManyKeysAreHeldBack(t, ledger.New(mustOpen(t, newPath(t), sqlite.Options{Unsafe: true}), ledger.Options{}))
}

func TestRatesAreForgotten(t *testing.T) {
	path, now := newPath(t), time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	l := ledger.New(mustOpen(t, path, sqlite.Options{Now: func() time.Time { return now }}), ledger.Options{})
	db := database(t, path)
	storetest.RatesAreForgotten(t, l, func(d time.Duration) { now = now.Add(d) }, func() (n int) {
		must.OK(t, db.QueryRow(`SELECT count(*) FROM ledger_lanes`).Scan(&n))
		return n
	}, 0)
}
