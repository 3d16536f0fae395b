package sqlite

import (
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger/storetest"
)

// fillLimited adds n items of kind l that its limits hold back: of a hundred shard keys, the rate of
// which is used up for ten hours.
func (w *workload) fillLimited(n int) {
	w.T.Helper()
	limits, err := jsonLimits(storetest.LimitsOfCalls)
	if err != nil {
		w.T.Fatal(err)
	}
	now := time.Now()
	w.exec(`INSERT INTO ledger_kinds (kind, limits, laned) VALUES ('l', ?1, 1) ON CONFLICT DO NOTHING`, limits)
	w.exec(`INSERT INTO ledger_lanes (kind, limit_key, next_at) WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99)
 SELECT 'l', 'busy ' || i, ?1 FROM n WHERE true ON CONFLICT DO NOTHING`, now.Add(10_000*time.Hour))
	w.exec(`INSERT INTO ledger_items (kind, key, slot, shard_key, created_at)
 WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
 SELECT 'l', 'l' || i, 0, 'busy ' || (i % 100), ?2 FROM n`, n, now)
	w.exec(`INSERT INTO ledger_backlog (item_id, kind, state, slot, due_at, gate, limit_key)
 SELECT id, 'l', 1, slot, ?1 + id, 1, shard_key FROM ledger_items WHERE kind = 'l'`, now)
}

// The hot path of kinds with limits, and that of others beside them, whatever is held back.
func TestHotPathOfLimits(t *testing.T) {
	for name, prepare := range map[string]func(*workload){
		"all alone":               func(*workload) {},
		"many held back":          func(w *workload) { w.fillLimited(many) },
		"many not filed":          func(w *workload) { w.fill(many, 1); w.exec(`UPDATE ledger_backlog SET kind = 'l'`) },
		"held back since ANALYZE": func(w *workload) { w.fill(many, 1); w.analyze(); w.fillLimited(many) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkload(t)
			prepare(w)
			w.checkCalls(t, w.LimitedCalls())
		})
	}
}
