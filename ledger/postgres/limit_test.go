package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/storetest"
)

func TestManyKeysAreHeldBack(t *testing.T) {
	s, err := postgres.Open(t.Context(), pgtest.Pool(t), postgres.Options{Schema: pgtest.Schema(t)})
	must.OK(t, err)
	defer s.Close()
	storetest.ManyKeysAreHeldBack(t, ledger.New(s, ledger.Options{}))
}

// Records of rates are removed once they hold nothing back, also of a kind without limits.
func TestRatesAreForgotten(t *testing.T) {
	pool, schema, now := pgtest.Pool(t), pgtest.Schema(t), time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	s, err := postgres.Open(t.Context(), pool, postgres.Options{Schema: schema, Now: func() time.Time { return now }})
	must.OK(t, err)
	defer s.Close()
	l := ledger.New(s, ledger.Options{})
	set := func(limits scheduler.Limits) {
		t.Helper()
		must.OK(t, l.SetKind(t.Context(), "test", ledger.Kind{Name: "k", Limits: limits}))
	}
	work := func(key string) {
		t.Helper()
		must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: key}))
		if leases, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: 1}); len(leases) != 1 ||
			err != nil {
			t.Fatal(len(leases), err)
		}
	}
	kept := func(want int) {
		t.Helper()
		var n int
		if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM `+schema+`.ledger_lanes`).Scan(&n); n != want ||
			err != nil {
			t.Errorf("%d rates are kept, want %d: %v", n, want, err)
		}
	}
	set(scheduler.Limits{RatePerShardKey: scheduler.Rate{Count: 1, Per: time.Second}})
	for i := range 10 {
		work(fmt.Sprint(i))
		now = now.Add(10 * time.Second)
	}
	kept(1)
	set(scheduler.Limits{})
	work("without limits")
	kept(0)
}
