package postgres

import (
	"fmt"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/sqlstore"
	"github.com/ledgerd/ledgerd/ledger/storetest"
)

// fillLimited adds n items of kind l that its limits hold back: the rate and the burst of each of the shard keys are
// used up.
func (w *workload) fillLimited(n, keys int) {
	w.T.Helper()
	limits := sqlstore.JSON(storetest.LimitsOfCalls)
	w.exec(w.T, `INSERT INTO {{S}}.ledger_kinds (kind, limits, laned) VALUES ('l', $1, true) ON CONFLICT DO NOTHING`,
		limits)
	w.exec(w.T,
		`INSERT INTO {{S}}.ledger_lanes (kind, limit_key, next_at) SELECT 'l', 'busy ' || n, now() + interval '10000 hours' FROM generate_series(0, $1::int - 1) n ON CONFLICT DO NOTHING`, keys)
	w.exec(w.T, `WITH i AS (
 INSERT INTO {{S}}.ledger_items (kind, key, slot, shard_key, created_at)
 SELECT 'l', 'l' || n, 0, 'busy ' || n % $2::int, now() FROM generate_series(1, $1::int) n RETURNING id, slot, shard_key)
INSERT INTO {{S}}.ledger_backlog (item_id, kind, stage, slot, due_at, gate, limit_key)
SELECT id, 'l', 1, slot, now() + id * interval '1 ms', 1, shard_key FROM i`, n, keys)
}

// The hot path of kinds with limits, and that of others beside them, with any number held back.
func TestPlansOfLimits(t *testing.T) {
	t.Parallel()
	url := planServer(t)
	for i, c := range []struct {
		name    string
		prepare func(*workload)
	}{
		{"all alone", func(*workload) {}},
		{"many not filed", func(w *workload) {
			w.fill(many/8, 1)
			w.exec(w.T, `UPDATE {{S}}.ledger_backlog SET kind = 'l'`)
			w.analyze()
		}},
		{"held back since the last ANALYZE", func(w *workload) {
			w.fill(many/8, 1)
			w.analyze()
			w.fillLimited(many/8, 100)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorkload(t, watch(t, embedder(t, url), fmt.Sprint("limited", i)), 100)
			start := time.Now()
			c.prepare(w)
			t.Logf("prepared in %v", time.Since(start))
			w.checkCalls(t, w.LimitedCalls(), false)
		})
	}
}

// However many shard keys a rate holds back: a claim passes over them in one statement, and looks at
// none of them more closely.
func TestHeldKeysArePassedOver(t *testing.T) {
	const keys = 1000
	w := newWorkload(t, watch(t, embedder(t, planServer(t)), "passed"), 10)
	w.fillLimited(keys, keys)
	plans := w.during(func() { w.Claim(ledger.Claim{Kind: "l"}, 0) })
	looked := 0.0
	for _, e := range plans {
		e.Plan.walk(func(n *node) {
			if n.Index == storetest.IndexRunning {
				looked += n.Loops
			}
		})
	}
	if t.Logf("%d statements, %v looks", len(plans), looked); len(plans) == 0 || len(plans) > 20 || looked > 10 {
		t.Errorf("%d statements and %v looks at what runs, for %d keys that are held back", len(plans), looked, keys)
	}
}
