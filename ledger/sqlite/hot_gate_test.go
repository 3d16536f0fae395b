package sqlite

import (
	"testing"
	"time"
)

// fillGated adds n items of kind g that need two resources of 100, which are held: parked ones, or
// ones that no claim has come upon yet.
func (w *workload) fillGated(n int, parked bool) {
	w.T.Helper()
	now := time.Now()
	w.exec(`INSERT INTO ledger_kinds (kind, gated) VALUES ('g', 1) ON CONFLICT DO NOTHING`)
	w.exec(
		`INSERT INTO ledger_held (resource, item_id, lock_id, since) WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99)
 SELECT 'busy ' || i, 0, randomblob(16), ?1 FROM n WHERE true ON CONFLICT DO NOTHING`, now)
	w.exec(`INSERT INTO ledger_items (kind, key, slot, resources, created_at)
 WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
 SELECT 'g', 'g' || i, 0, json_array('busy ' || (i % 100), 'busy ' || ((i + 1) % 100)), ?2 FROM n`, n, now)
	w.exec(`INSERT INTO ledger_backlog (item_id, kind, state, slot, due_at, gate, blocked_on, passed_at)
 SELECT id, 'g', 1, slot, ?1 + id, 2, CASE WHEN ?2 THEN 'busy ' || (id % 100) END, CASE WHEN ?2 THEN ?1 END FROM ledger_items WHERE kind = 'g'`, now, parked)
}

// The hot path of items that need resources, beside any number of waiting ones.
func TestHotPathOfResources(t *testing.T) {
	for name, prepare := range map[string]func(*workload){
		"all alone":            func(*workload) {},
		"many parked":          func(w *workload) { w.fillGated(many, true) },
		"many plain":           func(w *workload) { w.fill(many, 1); w.exec(`UPDATE ledger_backlog SET kind = 'g'`) },
		"parked since ANALYZE": func(w *workload) { w.fill(many, 1); w.analyze(); w.fillGated(many, true) },
		"ready since ANALYZE":  func(w *workload) { w.fillGated(many, true); w.analyze(); w.unpark() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkload(t)
			prepare(w)
			w.checkCalls(t, w.GatedCalls(func() { w.s.sweeps.Took(time.Time{}, 0) }))
		})
	}
}

// unpark makes what is parked look as if no claim had come upon it.
func (w *workload) unpark() {
	w.exec(`UPDATE ledger_backlog SET blocked_on = NULL, passed_at = NULL, due_at = due_at + 3600000000 WHERE kind = 'g'`)
}
