package sqlite_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/ledger/storetest"
)

func TestManyKeysAreHeldBack(t *testing.T) {
	storetest.ManyKeysAreHeldBack(t, ledger.New(mustOpen(t, newPath(t), sqlite.Options{Unsafe: true}), ledger.Options{}))
}

// Any claim removes lanes whose rates hold nothing back any more.
func TestRatesAreForgotten(t *testing.T) {
	path, now := newPath(t), time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	l := ledger.New(mustOpen(t, path, sqlite.Options{Now: func() time.Time { return now }}), ledger.Options{})
	db, err := sql.Open("sqlite", path)
	must.OK(t, err)
	defer db.Close()
	set := func(kind string, limits scheduler.Limits) {
		t.Helper()
		must.OK(t, l.SetKind(t.Context(), "test", ledger.Kind{Name: kind, Limits: limits}))
	}
	work := func(kind, key string) {
		t.Helper()
		must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: kind, Key: key}))
		if leases, err := l.Claim(t.Context(), ledger.Claim{Kind: kind, Agent: "a", Limit: 1}); len(leases) != 1 ||
			err != nil {
			t.Fatal(len(leases), err)
		}
	}
	kept := func(want int) {
		t.Helper()
		var n int
		if err := db.QueryRow(`SELECT count(*) FROM ledger_lanes`).Scan(&n); n != want || err != nil {
			t.Errorf("%d rates are kept, want %d: %v", n, want, err)
		}
	}
	rate := scheduler.Limits{RatePerShardKey: scheduler.Rate{Count: 1, Per: time.Second}}
	set("often", rate)
	set("rare", rate)
	for i := range 10 {
		work("often", fmt.Sprint(i))
		work("rare", fmt.Sprint(i)) // never the first after a while
		now = now.Add(10 * time.Second)
	}
	kept(2)
	set("often", scheduler.Limits{MaxRunning: 100})
	set("rare", scheduler.Limits{})
	work("often", "without a rate")
	kept(0)
}
