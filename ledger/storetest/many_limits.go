package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// ManyKeysAreHeldBack checks claims with more shard keys than one transaction reads. A claim finds the few items that
// may begin, and otherwise reports why all are held back.
func ManyKeysAreHeldBack(t *testing.T, l *ledger.Ledger) {
	const keys = 6000
	ctx := t.Context()
	add := func(items ...ledger.NewItem) {
		t.Helper()
		for part := range slices.Chunk(items, 1000) {
			must.Do(t)(l.Add(ctx, part...))
		}
	}
	claim := func(kind string, limit int) (int, scheduler.HeldBack) {
		t.Helper()
		leases, held, err := l.ClaimWithin(ctx, ledger.Claim{Kind: kind, Agent: "a", Limit: limit, TTL: time.Hour})
		must.OK(t, err)
		return len(leases), held
	}
	for kind, limits := range map[string]scheduler.Limits{
		"running": {MaxRunningPerShardKey: 1},
		"rate":    {RatePerShardKey: scheduler.Rate{Count: 1, Per: 24 * time.Hour}},
	} {
		must.OK(t, l.SetKind(ctx, "test", ledger.Kind{Name: kind, Limits: limits}))
		items := make([]ledger.NewItem, 2*keys)
		for i := range items {
			items[i] = ledger.NewItem{Kind: kind, Key: fmt.Sprint(i), ShardKey: fmt.Sprintf("%05d", i%keys)}
		}
		add(items...)
		for range keys / 1000 {
			if n, _ := claim(kind, 1000); n != 1000 {
				t.Fatalf("%s: %d are leased", kind, n)
			}
		}
		if n, held := claim(kind, 1); n != 0 || held.Full != (kind == "running") || (held.Wait > 0) != (kind == "rate") {
			t.Errorf("%s: %d more are leased, held back: %+v", kind, n, held)
		}
		for _, free := range []string{"03000a", "02500a"} { // the second is 5,500 keys after the first, in rotation
			add(ledger.NewItem{Kind: kind, Key: "free " + free, ShardKey: free})
			if n, _ := claim(kind, 1); n != 1 {
				t.Errorf("%s: key %s is not found among those that are held back", kind, free)
			}
		}
	}
}

// RatesAreForgotten checks that a claim removes the records of rates that hold nothing back any more, also after its
// kind has lost its limits. advance moves the database's clock, and kept counts the records. left is their number after
// only one of two such kinds has claimed: 0 if a claim cleans up for all kinds (SQLite), 1 if only for its own
// (Postgres).
func RatesAreForgotten(t *testing.T, l *ledger.Ledger, advance func(time.Duration), kept func() int, left int) {
	limit := func(limits scheduler.Limits, kinds ...string) {
		t.Helper()
		for _, kind := range kinds {
			must.OK(t, l.SetKind(t.Context(), "test", ledger.Kind{Name: kind, Limits: limits}))
		}
	}
	work := func(kind, key string) {
		t.Helper()
		must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: kind, Key: key}))
		leases, err := l.Claim(t.Context(), ledger.Claim{Kind: kind, Agent: "a", Limit: 1})
		must.OK(t, err)
		equal(t, "claimed of "+kind, len(leases), 1)
	}
	limit(scheduler.Limits{RatePerShardKey: scheduler.Rate{Count: 1, Per: time.Second}}, "often", "rare")
	for i := range 10 {
		work("often", fmt.Sprint(i))
		work("rare", fmt.Sprint(i)) // always after "often", at the same time
		advance(10 * time.Second)
	}
	equal(t, "kept rates", kept(), 2)
	limit(scheduler.Limits{MaxRunning: 100}, "often")
	limit(scheduler.Limits{}, "rare")
	work("often", "without a rate")
	equal(t, "kept rates of the other kind", kept(), left)
	work("rare", "without limits")
	equal(t, "kept rates", kept(), 0)
}
