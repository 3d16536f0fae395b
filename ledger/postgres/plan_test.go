package postgres

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/storetest"
)

// workload is the hot path on a ledger that is watched.
type workload struct {
	*storetest.Workload
	*watched
	fills    int
	seen     map[string]map[string]string // SQL → shape of its plan → what was run
	finished bool                         // many have
}

func newWorkload(t *testing.T, s *watched, batch int) *workload {
	w := &workload{watched: s}
	w.Workload = &storetest.Workload{T: t, Store: s.Store, Ledger: ledger.New(s.Store, ledger.Options{}), Batch: batch,
		Overdue: func(column string, ids []int64) {
			if column == "expires_at" { // as if they had been renewed by themselves
				w.exec(w.T, `UPDATE {{S}}.ledger_leases SET split = true, due_at = clock_timestamp() - interval '1 s' WHERE items && $1`, ids)
			}
			w.exec(w.T, `UPDATE {{S}}.ledger_backlog SET `+column+
				` = clock_timestamp() - interval '1 s' WHERE item_id = ANY($1)`, ids)
		},
		Settle: func() { w.exec(w.T, `ANALYZE {{S}}.ledger_attempts`) }}
	return w
}

// backlog is how many rows the backlog has, and on how many blocks.
func (w *workload) backlog() (rows, blocks int) {
	w.T.Helper()
	must.OK(w.T, w.direct.QueryRow(w.T.Context(),
		w.render(`SELECT count(*), pg_relation_size('{{S}}.ledger_backlog') / 8192 FROM {{S}}.ledger_backlog`)).Scan(
		&rows, &blocks))
	return rows, blocks
}

// leased is how many rows are leased.
func (w *workload) leased() (n int) {
	w.T.Helper()
	err := w.direct.QueryRow(w.T.Context(), w.render(
		`SELECT count(*) FROM {{S}}.ledger_backlog WHERE lock_id IS NOT NULL`)).Scan(&n)
	must.OK(w.T, err)
	return n
}

// forget makes the next probes go over whole indexes.
func (w *workload) forget() {
	p := &w.positions
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready, p.waiting, p.leased = nil, nil, frontier{}
}

// slack is how many rows a scan may touch beyond those that the statement needs.
const slack = 10

// Bounds of the pages of a statement. For each row that it needs it searches some indexes, each as deep as the tree,
// and adds an entry to each index of a row that it writes.
const blocksPerRow, blocksBeside = 40, 300

// Assignments of an UPDATE that bring rows into a state.
var become = map[ledger.State]string{
	ledger.StateWaiting: free + `stage = 0, due_at = now() + '1 hour' + item_id * interval '1 ms'`,
	ledger.StateReady:   free + `stage = 1, due_at = now() - interval '2 hours' + item_id * interval '1 ms'`,
	ledger.StateLeased:  `stage = 1, attempt = 1, lock_id = md5((item_id / 500)::text)::uuid`,
	ledger.StateDead:    free + `stage = 3`,
}

const free = `lock_id = NULL, expires_at = NULL, running = false, `

// leases makes the leases of rows that were brought into StateLeased.
func (w *workload) leases() {
	w.T.Helper()
	w.exec(w.T, `DELETE FROM {{S}}.ledger_leases`)
	w.exec(w.T, `INSERT INTO {{S}}.ledger_leases (lock_id, kind, agent, leased_at, expires_at, due_at, items)
SELECT lock_id, kind, 'x', now(), due, due, items FROM (
 SELECT lock_id, min(kind) AS kind, now() + '1 hour' + min(item_id) * interval '1 ms' AS due, array_agg(item_id ORDER BY item_id) AS items
 FROM {{S}}.ledger_backlog WHERE lock_id IS NOT NULL GROUP BY lock_id) l`)
}

// fill adds n rows to the items and to the backlog: ready ones of kinds k, k1, k2 …
func (w *workload) fill(n, kinds int) {
	w.T.Helper()
	w.fills++
	w.exec(w.T,
		`INSERT INTO {{S}}.ledger_kinds (kind) SELECT CASE n WHEN 0 THEN 'k' ELSE 'k' || n END FROM generate_series(0, $1::int - 1) n ON CONFLICT DO NOTHING`, kinds)
	w.exec(w.T, `WITH i AS (
 INSERT INTO {{S}}.ledger_items (kind, key, slot, payload, created_at)
 SELECT CASE n % $2::int WHEN 0 THEN 'k' ELSE 'k' || n % $2::int END, $3::text || n, n % 1024, '{}', now() FROM generate_series(1, $1::int) n
 RETURNING id, kind, slot)
INSERT INTO {{S}}.ledger_backlog (item_id, kind, stage, priority, slot, due_at)
SELECT id, kind, 1, CASE WHEN $2::int > 1 THEN id / $2::int % 5 - 2 ELSE 0 END, slot, now() - interval '2 hours' + id * interval '1 ms' FROM i`, n, kinds, fmt.Sprintf("/data/in/2026/11/%d/users-", w.fills))
}

// turn brings all rows of the backlog into a state.
func (w *workload) turn(s ledger.State) {
	w.T.Helper()
	w.exec(w.T, `UPDATE {{S}}.ledger_backlog SET `+become[s])
	w.leases()
}

// end takes all rows out of the backlog, as if they had been worked and pruned long ago.
func (w *workload) end() {
	w.T.Helper()
	w.finished = true
	w.exec(w.T, `INSERT INTO {{S}}.ledger_attempts (item_id, attempt, epoch, kind, outcome, final, agent, finished_at)
 SELECT item_id, 1, 1, kind, item_id % 2 * 2, true, 'x', now() - interval '2 hours' + item_id * interval '1 ms' FROM {{S}}.ledger_backlog`)
	w.exec(w.T, `UPDATE {{S}}.ledger_items SET payload = NULL`)
	w.exec(w.T, `DELETE FROM {{S}}.ledger_backlog`)
}

func (w *workload) analyze() {
	w.T.Helper()
	for _, table := range []string{"items", "backlog", "leases", "attempts"} {
		w.exec(w.T, `VACUUM ANALYZE {{S}}.ledger_`+table)
	}
}

// hold puts off the probes over whole indexes: they come by time.
func (w *workload) hold() {
	p, later := &w.positions, time.Now().Add(time.Hour)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, levels := range p.ready {
		for i := range levels {
			levels[i].whole = later
		}
	}
	for _, f := range p.waiting {
		f.whole = later
	}
	p.leased.whole = later
}

// check runs the hot path: each call over its whole index or, if positions are held, from these on.
func (w *workload) check(t *testing.T, held bool) { w.checkCalls(t, w.Calls(), held) }

func (w *workload) checkCalls(t *testing.T, calls []storetest.Call, held bool) {
	for _, c := range calls {
		if held && (c.Counts || c.NoPosition) || c.Finished && !w.finished {
			continue
		}
		if !held {
			w.forget()
		}
		if c.Before != nil {
			c.Before()
		}
		b := planBounds{indexes: c.Indexes, rows: max(c.Rows, w.Batch) + slack,
			blocks: blocksPerRow*max(c.Rows, w.Batch) + blocksBeside}
		if c.Counts {
			rows, blocks := w.backlog()
			b.rows, b.blocks = b.rows+rows, b.blocks+rows+3*blocks
		}
		plans := w.during(c.Run)
		w.shapes(plans)
		b.passed = w.leased()
		if b.blocks += b.passed; c.Counts { // it looks all of them up
			b.blocks += 2 * b.passed
		}
		if c.NoPosition { // it may try all leases, where they are few
			b.rows += b.passed
		}
		most, rows := 0.0, 0.0
		for _, e := range plans {
			most = max(most, e.blocks())
			e.Plan.walk(func(n *node) {
				if n.big() {
					rows = max(rows, n.touched())
				}
			})
			for _, f := range e.faults(b) {
				t.Errorf("%s: %s\n%s", c.Name, f, e.text)
			}
		}
		t.Logf("%-24s %3d plans %8.0f rows %8.0f blocks (%d, %d)", c.Name, len(plans), rows, most, b.rows, b.blocks)
	}
}

// shapes collects the plans of each statement.
func (w *workload) shapes(plans []explained) {
	for _, e := range plans {
		if !w.prepared[e.Query] {
			continue
		}
		if w.seen == nil {
			w.seen = map[string]map[string]string{}
		}
		if w.seen[e.Query] == nil {
			w.seen[e.Query] = map[string]string{}
		}
		w.seen[e.Query][e.Plan.shape(0)] = w.T.Name()
	}
}

// Statements that are prepared have one plan each. The plan does not depend on the tables and statistics, neither when
// it was made nor when it is used. It reads only the rows that the statement needs.
func TestPreparedPlans(t *testing.T) {
	t.Parallel()
	url := planServer(t)
	for _, c := range []struct {
		name  string
		batch int
		fill  func(*workload)
		calls func(*workload) []storetest.Call
	}{
		{"plain", 500, func(w *workload) { w.fill(many, 1) }, func(w *workload) []storetest.Call {
			return append(w.Calls(), w.rareCalls()...)
		}},
		{"limits", 100, func(w *workload) { w.fillLimited(many/16, 100) }, func(w *workload) []storetest.Call {
			return w.LimitedCalls()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorkload(t, watchHot(t, url, c.name), c.batch)
			emptied := func() { w.exec(t, `DELETE FROM {{S}}.ledger_backlog WHERE item_id % 1000 > 0`) }
			for _, state := range []struct {
				name    string
				prepare func()
			}{
				{"empty, never analysed", func() {}},
				{"empty, analysed", func() { w.exec(t, `DELETE FROM {{S}}.ledger_backlog`); w.analyze() }},
				{"filled, statistics of before", func() { c.fill(w) }},
				{"filled, analysed", func() { w.analyze() }},
				{"almost empty, statistics of before", emptied},
				{"almost empty, analysed", func() { w.analyze() }},
				{"all leased, analysed", func() {
					w.exec(t, `UPDATE {{S}}.ledger_backlog SET running = limit_key IS NOT NULL, `+
						become[ledger.StateLeased])
					w.leases()
					w.analyze()
				}},
			} {
				t.Run(state.name, func(t *testing.T) {
					seen := w.seen
					w = newWorkload(t, w.watched, c.batch)
					w.seen = seen
					for _, left := range []string{"attempts", "backlog WHERE lock_id IS NOT NULL", "leases",
						"lanes WHERE limit_key NOT LIKE 'busy%'"} {
						w.exec(t, `DELETE FROM {{S}}.ledger_`+left)
					}
					state.prepare()
					w.checkCalls(t, c.calls(w), false)
				})
			}
			for sql, shapes := range w.seen {
				if len(shapes) > 1 {
					text := ""
					for shape, where := range shapes {
						text += where + ":\n" + shape
					}
					t.Errorf("%d plans of\n%s\n%s", len(shapes), sql, text)
				}
			}
			for sql := range w.prepared {
				if c.name == "plain" && w.seen[sql] == nil {
					t.Errorf("nothing was explained of\n%s", sql)
				}
			}
		})
	}
}

// rareCalls are of statements that other calls do not use.
func (w *workload) rareCalls() []storetest.Call {
	add := func(scope string, n, priorities int) {
		items := make([]ledger.NewItem, n)
		for i := range items {
			items[i] = ledger.NewItem{Kind: "mixed", Scope: w.T.Name() + scope, Key: fmt.Sprint(i),
				Priority: int16(i % priorities)}
		}
		must.Do(w.T)(w.Ledger.Add(w.T.Context(), items...))
	}
	return []storetest.Call{
		{Name: "add items of two priorities", Indexes: []string{storetest.IndexIdentity}, Run: func() {
			w.newness.Store(someNew)
			add("", w.Batch, 2)
			w.newness.Store(allNew)
			add(" trusted", minTrust, 2)
		}},
		{Name: "add few items, then many", Indexes: []string{storetest.IndexIdentity}, Run: func() {
			w.newness.Store(allNew)
			add(" few", minTrust, 1)
			add(" many", minCopy, 1)
		}},
		{Name: "end and renew a part of two claims", Rows: 2 * w.Batch, Indexes: []string{storetest.IndexReady,
			storetest.IndexIdentity}, Run: func() {
			add("two claims", 2*w.Batch, 1)
			var ends [2][]ledger.Ending // without and with output, of both claims each
			var rest []*ledger.Lease
			for range 2 {
				got, err := w.Ledger.Claim(w.T.Context(), ledger.Claim{Kind: "mixed", Agent: "a", Limit: w.Batch})
				if err != nil || len(got) != w.Batch {
					w.T.Fatalf("%d leases, %v", len(got), err)
				}
				for i, lease := range got[1:] {
					ends[i%2] = append(ends[i%2], ledger.Ending{Lease: lease, Result: ledger.Done([]byte("{}"[:i%2*2]))})
				}
				rest = append(rest, got[0])
			}
			_, errs := w.Ledger.Extend(w.T.Context(), time.Minute, rest...)
			for _, e := range ends {
				errs = append(errs, w.Ledger.Finish(w.T.Context(), e...)...)
			}
			must.OK(w.T, errors.Join(errs...))
		}},
		{Name: "coalesced claims", Indexes: []string{storetest.IndexReady, storetest.IndexIdentity}, Run: func() {
			add(" coalesced", 100, 1)
			for _, shard := range []scheduler.Shard{{Index: 1, Count: 2}, {}} {
				got, errs := coalesced(w.T.Context(), w.T, w.Ledger, w.watched.Store,
					ledger.Claim{Kind: "mixed", Shard: shard}, nil, 3, 8, 1)
				must.OK(w.T, errors.Join(errs...))
				if n := len(slices.Concat(got...)); n != 12 {
					w.T.Errorf("coalesced claims leased %d items, want 12", n)
				}
			}
		}},
		{Name: "resume a shard", Indexes: []string{storetest.IndexReady, storetest.IndexLeased}, Rows: 5 * w.Batch,
			Counts: true, Run: func() { w.Claim(ledger.Claim{Shard: scheduler.Shard{Index: 1, Count: 4}, Resume: true}, 1) }},
	}
}

// embedder is a pool as a program may have it that embeds a ledger: with pgx's default (plans are cached) and without
// the settings of ours. The store must not rely on those settings.
func embedder(t *testing.T, url string) *pgxpool.Config {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	must.OK(t, err)
	return config
}

// Each statement of the hot path uses its index and reads only the rows that it needs, with any contents of the tables,
// now and when the statistics were taken. Unless LEDGERD_TEST_ROWS is set, four states are tested: a table that is
// tempting to read as a whole, a table without statistics, and two tables with wrong statistics.
func TestPlans(t *testing.T) {
	t.Parallel()
	url := planServer(t)
	for i, c := range []struct {
		name    string
		prepare func(*workload)
	}{
		{"polled while empty", func(w *workload) {
			w.fill(5000, 1) // so that finishing is known as well, on a small table
			for range 4 {
				w.Claim(ledger.Claim{}, w.Batch)
				w.Finish(func(int) ledger.Result { return ledger.Done(nil) })
			}
			w.exec(w.T, `DELETE FROM {{S}}.ledger_backlog`)
			w.analyze()
			for range 20 {
				w.Poll()
			}
			w.fill(many, 1)
		}},
		{"almost empty at the last VACUUM", func(w *workload) { w.emptied(); w.fill(many, 1) }},
		{"almost empty, then all due", func(w *workload) {
			w.emptied()
			w.fill(many, 1)
			w.exec(w.T, `UPDATE {{S}}.ledger_backlog SET stage = 0`)
		}},
		{"almost empty, then all expired", func(w *workload) {
			w.emptied()
			w.fill(many, 1)
			w.turn(ledger.StateLeased)
			w.exec(w.T, `UPDATE {{S}}.ledger_leases SET expires_at = now() - items[1] * interval '1 ms', due_at = now() - items[1] * interval '1 ms'`)
		}},
		{"never analyzed", func(w *workload) { w.fill(many, 1) }},
		{"a small table", func(w *workload) { w.fill(5000, 1); w.analyze() }}, // tempting to read as a whole
		{"a middling table", func(w *workload) { w.fill(25_000, 1); w.analyze() }},
		{"five kinds", func(w *workload) { w.fill(many, 5); w.analyze() }},
		{"all waiting at the last ANALYZE", func(w *workload) { w.stale(ledger.StateWaiting, ledger.StateReady) }},
		{"all leased at the last ANALYZE", func(w *workload) { w.stale(ledger.StateLeased, ledger.StateReady) }},
		{"all dead at the last ANALYZE", func(w *workload) { w.stale(ledger.StateDead, ledger.StateReady) }},
		{"all finished at the last ANALYZE", func(w *workload) {
			w.fill(many, 1)
			w.end()
			w.analyze()
			w.exec(t, `INSERT INTO {{S}}.ledger_backlog (item_id, kind, stage, slot, due_at, attempt, epoch)
 SELECT id, kind, 1, slot, now() - interval '2 hours' + id * interval '1 ms', 1, 2 FROM {{S}}.ledger_items`)
		}},
		{"all waiting", func(w *workload) { w.stale(ledger.StateReady, ledger.StateWaiting) }},
		{"all leased", func(w *workload) { w.stale(ledger.StateReady, ledger.StateLeased) }},
		{"all dead", func(w *workload) { w.stale(ledger.StateReady, ledger.StateDead) }},
		{"all finished", func(w *workload) { w.fill(many, 1); w.end(); w.analyze(); w.Poll() }},
	} {
		if !allStates() && !slices.Contains([]string{"a small table", "never analyzed", "almost empty, then all due",
			"all leased at the last ANALYZE"}, c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			w := newWorkload(t, watch(t, embedder(t, url), fmt.Sprint("plans", i)), 500)
			start := time.Now()
			c.prepare(w)
			t.Logf("prepared in %v", time.Since(start))
			w.check(t, false)
			t.Logf("done in %v", time.Since(start))
		})
	}
}

// emptied makes a backlog that had many rows and has a few. These are on its last pages, so VACUUM gives no page back,
// and the planner does not notice rows that are added later.
func (w *workload) emptied() {
	w.T.Helper()
	w.fill(many, 1)
	w.exec(w.T, `DELETE FROM {{S}}.ledger_backlog WHERE item_id <= $1`, many-100)
	w.analyze()
}

// stale makes a table whose rows are all in the state now, with statistics from when all were in the state then.
func (w *workload) stale(then, now ledger.State) {
	w.T.Helper()
	w.fill(many, 1)
	if then != ledger.StateReady {
		w.turn(then)
	}
	w.analyze()
	w.turn(now)
}

// Entries of rows that are gone stay in the indexes until a vacuum, and beside an old transaction
// no vacuum removes them. Positions keep the hot path from reading them again and again.
func TestDeadEntries(t *testing.T) {
	t.Parallel()
	config, err := poolConfig(planServer(t))
	must.OK(t, err)
	w := newWorkload(t, watch(t, config, "plans"), 20)
	w.fill(w.Batch, 1)
	w.analyze()
	pin, err := w.direct.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	must.OK(t, err)
	defer pin.Rollback(t.Context())
	must.Do(t)(pin.Exec(t.Context(), "SELECT 1"))
	w.fill(many, 1)
	past := func(column string) string {
		return column + ` = now() - interval '2 hours' + item_id * interval '1 ms'`
	}
	w.exec(t, `UPDATE {{S}}.ledger_backlog SET stage = 0, `+past("due_at"))
	w.turn(ledger.StateLeased)
	w.exec(t, `UPDATE {{S}}.ledger_backlog SET `+past("expires_at"))
	w.exec(t, `UPDATE {{S}}.ledger_leases SET split = true, due_at = now() - interval '2 hours'`)
	w.turn(ledger.StateDead)
	w.end()
	w.exec(t, `DELETE FROM {{S}}.ledger_attempts`)
	w.finished = false
	w.analyze() // removes nothing
	t.Run("pinned", func(t *testing.T) {
		w.T = t
		w.Poll()
		w.Poll() // the first has told which kinds there are
		w.hold()
		w.check(t, true)
	})
	must.OK(t, pin.Rollback(t.Context()))
	t.Run("not vacuumed", func(t *testing.T) {
		w.T = t
		w.Poll()
		w.hold()
		w.check(t, true)
	})
	t.Run("vacuumed", func(t *testing.T) {
		w.T = t
		w.analyze()
		w.check(t, false)
	})
}
