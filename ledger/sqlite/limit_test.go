package sqlite_test

import (
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

// There may be more shard keys than one claim looks at. The next one goes on from there, also when all
// of those are held back.
func TestManyKeysAreHeldBack(t *testing.T) {
	const n = 6000
	l := ledger.New(mustOpen(t, newPath(t), sqlite.Options{Unsafe: true}), ledger.Options{})
	if err := l.SetKind(t.Context(), "test", ledger.Kind{Name: "k", Limits: ledger.Limits{MaxRunningPerShardKey: 1}}); err != nil {
		t.Fatal(err)
	}
	items := numbered(2 * n)
	for i := range items {
		items[i].ShardKey = fmt.Sprintf("%05d", i%n)
	}
	for part := range slices.Chunk(items, 1000) {
		if _, err := l.Add(t.Context(), part...); err != nil {
			t.Fatal(err)
		}
	}
	leased := map[string]*ledger.Lease{}
	claim := func(limit int) int {
		t.Helper()
		leases, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		for _, ls := range leases {
			leased[ls.ShardKey] = ls
		}
		return len(leases)
	}
	for range n / 1000 {
		if got := claim(1000); got != 1000 {
			t.Fatalf("%d are leased", got)
		}
	}
	if claim(1) != 0 {
		t.Fatal("more is leased than may be")
	}
	for _, free := range []string{"03000", "02500"} { // 5,500 keys behind the other
		if errs := l.Finish(t.Context(), ledger.Ending{Lease: leased[free], Result: ledger.Done(nil)}); errs[0] != nil {
			t.Fatal(errs[0])
		}
		if claim(1)+claim(1) != 1 {
			t.Errorf("key %s is not found behind those that are held back", free)
		}
	}
}

// What is kept of rates goes when it says no more, whoever claims.
func TestRatesAreForgotten(t *testing.T) {
	path, now := newPath(t), time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	l := ledger.New(mustOpen(t, path, sqlite.Options{Now: func() time.Time { return now }}), ledger.Options{})
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	set := func(kind string, limits ledger.Limits) {
		t.Helper()
		if err := l.SetKind(t.Context(), "test", ledger.Kind{Name: kind, Limits: limits}); err != nil {
			t.Fatal(err)
		}
	}
	work := func(kind, key string) {
		t.Helper()
		if _, err := l.Add(t.Context(), ledger.NewItem{Kind: kind, Key: key}); err != nil {
			t.Fatal(err)
		}
		if leases, err := l.Claim(t.Context(), ledger.Claim{Kind: kind, Agent: "a", Limit: 1}); len(leases) != 1 || err != nil {
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
	rate := ledger.Limits{RatePerShardKey: ledger.Rate{Count: 1, Per: time.Second}}
	set("often", rate)
	set("rare", rate)
	for i := range 10 {
		work("often", fmt.Sprint(i))
		work("rare", fmt.Sprint(i)) // never the first after a while
		now = now.Add(10 * time.Second)
	}
	kept(2)
	set("often", ledger.Limits{MaxRunning: 100})
	set("rare", ledger.Limits{})
	work("often", "without a rate")
	kept(0)
}
