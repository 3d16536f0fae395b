package postgres

import (
	"fmt"
	"testing"
	"time"
)

// fillGated adds n items of kind g that need two resources of 100, which are held: all are parked.
func (w *workload) fillGated(n int) {
	w.T.Helper()
	w.exec(w.T, `INSERT INTO {{S}}.ledger_kinds (kind, gated) VALUES ('g', true) ON CONFLICT DO NOTHING`)
	w.exec(w.T,
		`INSERT INTO {{S}}.ledger_held (resource, item_id, lock_id, since) SELECT 'busy ' || n, 0, gen_random_uuid(), now() FROM generate_series(0, 99) n ON CONFLICT DO NOTHING`)
	w.exec(w.T, `WITH i AS (
 INSERT INTO {{S}}.ledger_items (kind, key, slot, resources, created_at)
 SELECT 'g', 'g' || n, 0, ARRAY['busy ' || n % 100, 'busy ' || (n + 1) % 100], now() FROM generate_series(1, $1::int) n RETURNING id, slot)
INSERT INTO {{S}}.ledger_backlog (item_id, kind, stage, slot, due_at, gate, blocked_on, passed_at)
SELECT id, 'g', 1, slot, now() + id * interval '1 ms', 2, 'busy ' || id % 100, now() FROM i`, n)
}

// unpark makes what is parked look as if no claim had come upon it.
func (w *workload) unpark() {
	w.T.Helper()
	w.exec(w.T, `UPDATE {{S}}.ledger_backlog SET blocked_on = NULL, passed_at = NULL WHERE kind = 'g'`)
}

// The hot path of items that need resources, beside any number of waiting ones.
func TestPlansOfResources(t *testing.T) {
	t.Parallel()
	url := planServer(t)
	for i, c := range []struct {
		name    string
		prepare func(*workload)
	}{
		{"all alone", func(*workload) {}},
		{"many parked", func(w *workload) { w.fillGated(many / 4); w.analyze() }},
		{"many plain", func(w *workload) {
			w.fill(many/4, 1)
			w.exec(w.T, `UPDATE {{S}}.ledger_backlog SET kind = 'g'`)
			w.analyze()
		}},
		{"parked since the last ANALYZE", func(w *workload) { w.fill(many/4, 1); w.analyze(); w.fillGated(many / 4) }},
		{"never analyzed", func(w *workload) { w.fillGated(many / 4) }},
		{"ready since the last ANALYZE", func(w *workload) { w.fillGated(5000); w.analyze(); w.unpark() }},
		{"parked and not vacuumed", func(w *workload) {
			w.fillGated(many / 8)
			for range 3 {
				w.unpark()
				w.exec(w.T,
					`UPDATE {{S}}.ledger_backlog SET blocked_on = 'busy ' || item_id % 100, passed_at = now() WHERE kind = 'g'`)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorkload(t, watch(t, embedder(t, url), fmt.Sprint("gated", i)), 100)
			start := time.Now()
			c.prepare(w)
			t.Logf("prepared in %v", time.Since(start))
			w.checkCalls(t, w.GatedCalls(func() { w.gates.sweeps.Took(time.Time{}, 0) }), false)
		})
	}
}
