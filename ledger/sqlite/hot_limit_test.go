package sqlite

import (
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/sqlstore"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/storetest"
)

// fillLimited adds n items of kind l that its limits hold back: the rates of the shard keys are used up for a long
// time.
func (w *workload) fillLimited(n, keys int) {
	w.T.Helper()
	limits := sqlstore.JSON(storetest.LimitsOfCalls)
	now := time.Now()
	w.exec(`INSERT INTO ledger_kinds (kind, limits, laned) VALUES ('l', ?1, 1) ON CONFLICT DO NOTHING`, limits)
	w.exec(
		`INSERT INTO ledger_lanes (kind, limit_key, next_at) WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ?2 - 1)
 SELECT 'l', 'busy ' || i, ?1 FROM n WHERE true ON CONFLICT DO NOTHING`, now.Add(10_000*time.Hour), keys)
	w.exec(`INSERT INTO ledger_items (kind, key, slot, shard_key, created_at)
 WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
 SELECT 'l', 'l' || i, 0, 'busy ' || (i % ?3), ?2 FROM n`, n, now, keys)
	w.exec(`INSERT INTO ledger_backlog (item_id, kind, state, slot, due_at, gate, limit_key)
 SELECT id, 'l', 1, slot, ?1 + id, 1, shard_key FROM ledger_items WHERE kind = 'l'`, now)
}

// The hot path of kinds with limits, and of other kinds beside them, with any number of items held back.
func TestHotPathOfLimits(t *testing.T) {
	for name, prepare := range map[string]func(*workload){
		"all alone":               func(*workload) {},
		"many held back":          func(w *workload) { w.fillLimited(many, 100) },
		"many not filed":          func(w *workload) { w.fill(many, 1); w.exec(`UPDATE ledger_backlog SET kind = 'l'`) },
		"held back since ANALYZE": func(w *workload) { w.fill(many, 1); w.analyze(); w.fillLimited(many, 100) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkload(t)
			prepare(w)
			w.checkCalls(t, w.LimitedCalls())
		})
	}
}

// A claim skips all shard keys that a rate holds back in one statement, however many they are.
func TestHeldKeysArePassedOver(t *testing.T) {
	const keys = 2000
	w := newWorkload(t)
	w.fillLimited(keys, keys)
	w.Claim(ledger.Claim{Kind: "l"}, 0)
	for _, c := range []ledger.Claim{{Kind: "l"}, {Kind: "l", Shard: scheduler.Shard{Index: 1, Count: 2}}} {
		w.ran()
		w.Claim(c, 0)
		ran, steps := w.ran(), 0
		for _, m := range ran {
			steps += m.steps
		}
		t.Logf("%+v: %d statements, %d steps", c.Shard, len(ran), steps)
		if len(ran) > 15 || steps > 100*keys {
			t.Errorf("%+v: %d statements and %d steps for %d keys that are held back", c.Shard, len(ran), steps, keys)
		}
	}
}
