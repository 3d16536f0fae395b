package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/storetest"
)

// many is how many rows a large table has. Steps are counted exactly, so even a smaller table would show a bad plan,
// and the race detector makes SQLite twenty times slower.
var many = manyRows()

func manyRows() int {
	if n, err := strconv.Atoi(os.Getenv("LEDGERD_TEST_ROWS")); err == nil {
		return n
	}
	return 2000
}

// workload is the hot path on a ledger whose statements are measured.
type workload struct {
	*storetest.Workload
	s        *Store
	side     *handle // a second connection, without the ledger
	ran      func() []measured
	fills    int
	finished bool // many rows are finished
}

func newWorkload(t *testing.T) *workload {
	t.Helper()
	w := &workload{Workload: &storetest.Workload{T: t, Batch: 20}}
	w.open(filepath.Join(t.TempDir(), "ledger.db"))
	var err error
	if w.side, err = open(t.Context(), w.s.file.uri("busy_timeout(5000)", "synchronous(OFF)")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.side.close() })
	w.Overdue = func(column string, ids []int64) {
		w.exec(`UPDATE ledger_backlog SET `+column+` = ?2 WHERE item_id IN (SELECT value FROM json_each(?1))`, array(ids),
			time.Now().Add(-time.Second))
	}
	w.Settle = func() {} // no statistics exist, unless another program makes them
	return w
}

func (w *workload) open(path string) {
	w.T.Helper()
	s, err := Open(w.T.Context(), path, Options{Unsafe: true})
	must.OK(w.T, err)
	w.T.Cleanup(func() { s.Close() })
	w.s, w.Store, w.Ledger = s, s, ledger.New(s, ledger.Options{})
	w.ran = measure(w.T.(*testing.T), s)
}

func (w *workload) exec(query string, args ...any) {
	w.T.Helper()
	if _, err := w.side.exec(w.T.Context(), query, args); err != nil {
		w.T.Fatalf("%v\n%s", err, query)
	}
}

// fill adds n rows to the items and to the backlog: ready ones of kinds k, k1, k2 …
func (w *workload) fill(n, kinds int) {
	w.T.Helper()
	w.fills++
	past := time.Now().Add(-2 * time.Hour)
	w.exec(
		`INSERT INTO ledger_kinds (kind) SELECT DISTINCT CASE value WHEN 0 THEN 'k' ELSE 'k' || value END FROM json_each('[0,1,2,3,4]') WHERE value < ?1 ON CONFLICT DO NOTHING`, kinds)
	w.exec(`INSERT INTO ledger_items (kind, key, slot, payload, created_at)
 WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
 SELECT CASE i % ?2 WHEN 0 THEN 'k' ELSE 'k' || (i % ?2) END, ?3 || i, i % 1024, x'7b7d', ?4 FROM n`, n, kinds, fmt.Sprintf("/data/in/2026/11/%d/users-", w.fills), past)
	w.exec(`INSERT INTO ledger_backlog (item_id, kind, state, priority, slot, due_at)
 SELECT id, kind, 1, CASE WHEN ?1 > 1 THEN id / ?1 % 5 - 2 ELSE 0 END, slot, ?2 + id FROM ledger_items i WHERE key GLOB ?3 || '*'`,
		kinds, past, fmt.Sprintf("/data/in/2026/11/%d/users-", w.fills))
}

const free = `locked_by = NULL, lock_id = NULL, leased_at = NULL, expires_at = NULL, `

// turn sets all rows of the backlog to a state.
func (w *workload) turn(to ledger.State) {
	w.T.Helper()
	now := time.Now()
	switch to {
	case ledger.StateWaiting:
		w.exec(`UPDATE ledger_backlog SET `+free+`state = 0, due_at = ?1 + item_id`, now.Add(time.Hour))
	case ledger.StateReady:
		w.exec(`UPDATE ledger_backlog SET `+free+`state = 1, due_at = ?1 + item_id`, now.Add(-2*time.Hour))
	case ledger.StateLeased:
		w.exec(
			`UPDATE ledger_backlog SET state = 2, attempt = 1, locked_by = 'x', lock_id = randomblob(16), leased_at = ?1, expires_at = ?2 + item_id`, now, now.Add(time.Hour))
	case ledger.StateDead:
		w.exec(`UPDATE ledger_backlog SET ` + free + `state = 3`)
	}
}

// end removes all rows from the backlog, as if they had been worked and pruned long ago.
func (w *workload) end() {
	w.T.Helper()
	w.finished = true
	w.exec(`INSERT INTO ledger_attempts (item_id, attempt, epoch, kind, outcome, final, agent, finished_at)
 SELECT item_id, 1, 1, kind, item_id % 2 * 2, 1, 'x', ?1 + item_id FROM ledger_backlog`, time.Now().Add(-2*time.Hour))
	w.exec(`UPDATE ledger_items SET payload = NULL`)
	w.exec(`DELETE FROM ledger_backlog`)
}

// analyze makes statistics, as a program may do in its own file. It opens the ledger again, because connections read
// statistics once.
func (w *workload) analyze() {
	w.T.Helper()
	w.exec(`ANALYZE`)
	must.OK(w.T, w.s.Close())
	w.open(w.s.file.path)
}

// plan returns the steps by which SQLite would run a statement. With statistics they depend on the arguments.
func plan(t *testing.T, s *Store, query string, args ...any) (steps []string) {
	t.Helper()
	err := s.read(t.Context(), false, func(r session) error {
		return r.query("EXPLAIN QUERY PLAN "+query, func(r row) error {
			steps = append(steps, r.text(3))
			return nil
		}, args...)
	})
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return steps
}

// The most steps of a statement: stepsPerRow for each row that it reads or writes, and stepsBeside for all else. Most
// rows need a few dozen steps, the widest row a hundred and twenty.
const stepsPerRow, stepsBeside = 150, 1000

var usedIndex = regexp.MustCompile(`^(?:SEARCH|SCAN) (\S+)(?:.* USING (?:COVERING )?INDEX (\S+))?`)

// faults returns in which ways a statement exceeded its bounds.
func (w *workload) faults(t *testing.T, c storetest.Call, m measured, steps int) (faults []string) {
	if m.steps > steps {
		faults = append(faults, fmt.Sprintf("takes %d steps, %d at most", m.steps, steps))
	}
	word, _, _ := strings.Cut(m.query, " ")
	if !slices.Contains([]string{"SELECT", "INSERT", "UPDATE", "DELETE"}, word) || strings.Contains(m.query, "?,?),(") {
		return faults
	}
	for _, step := range plan(t, w.s, m.query, m.args...) {
		found := usedIndex.FindStringSubmatch(step)
		if found == nil {
			continue
		}
		index := found[2]
		if index == "sqlite_autoindex_ledger_items_1" {
			index = storetest.IndexIdentity
		}
		if (strings.HasPrefix(index, "ledger_") || index == storetest.IndexIdentity) && !slices.Contains(c.Indexes, index) {
			faults = append(faults, "goes by "+index+": "+step)
		}
	}
	return faults
}

func (w *workload) backlog() (rows int) {
	w.T.Helper()
	err := w.side.query(w.T.Context(), `SELECT count(*) FROM ledger_backlog`, func(r row) error {
		rows = int(r.int(0))
		return nil
	}, nil)
	must.OK(w.T, err)
	return rows
}

// check runs the hot path.
func (w *workload) check(t *testing.T) { w.checkCalls(t, w.Calls()) }

func (w *workload) checkCalls(t *testing.T, calls []storetest.Call) {
	for _, c := range calls {
		if c.Finished && !w.finished {
			continue
		}
		if c.Before != nil {
			c.Before()
		}
		steps := stepsPerRow*max(c.Rows, w.Batch) + stepsBeside
		if c.Counts {
			steps += 50 * w.backlog() // for the leased rows, for each kind
		}
		w.ran()
		c.Run()
		ran := w.ran()
		if len(ran) == 0 {
			t.Errorf("%s: nothing was measured", c.Name)
		}
		most := 0
		for _, m := range ran {
			most = max(most, m.steps)
			for _, f := range w.faults(t, c, m, steps) {
				t.Errorf("%s: %s\n%s\n%s", c.Name, f, m.query, strings.Join(plan(t, w.s, m.query, m.args...), "\n"))
			}
		}
		t.Logf("%-24s %3d statements %8d steps (%d)", c.Name, len(ran), most, steps)
	}
}

// Each statement of the hot path uses its index and reads only the rows that it needs, with any contents of the tables,
// with and without statistics of them.
func TestHotPath(t *testing.T) {
	stale := func(then, now ledger.State) func(*workload) {
		return func(w *workload) {
			w.fill(many, 1)
			w.turn(then)
			w.analyze()
			w.turn(now)
		}
	}
	for _, c := range []struct {
		name    string
		prepare func(*workload)
	}{
		{"polled while empty", func(w *workload) {
			w.analyze()
			for range 20 {
				w.Poll()
			}
			w.fill(many, 1)
		}},
		{"no statistics", func(w *workload) { w.fill(many, 1) }},
		{"a small table", func(w *workload) { w.fill(500, 1); w.analyze() }},
		{"five kinds", func(w *workload) { w.fill(many, 5); w.analyze() }},
		{"all waiting at the last ANALYZE", stale(ledger.StateWaiting, ledger.StateReady)},
		{"all leased at the last ANALYZE", stale(ledger.StateLeased, ledger.StateReady)},
		{"all dead at the last ANALYZE", stale(ledger.StateDead, ledger.StateReady)},
		{"all finished at the last ANALYZE", func(w *workload) {
			w.fill(many, 1)
			w.end()
			w.analyze()
			w.fill(many, 1)
		}},
		{"all due at the last ANALYZE", func(w *workload) {
			w.fill(many, 1)
			w.exec(`UPDATE ledger_backlog SET state = 0`)
			w.analyze()
			w.turn(ledger.StateWaiting)
		}},
		{"all expired at the last ANALYZE", func(w *workload) {
			w.fill(many, 1)
			w.turn(ledger.StateLeased)
			w.exec(`UPDATE ledger_backlog SET expires_at = due_at`)
			w.analyze()
			w.turn(ledger.StateWaiting)
		}},
		{"all waiting", stale(ledger.StateReady, ledger.StateWaiting)},
		{"all leased", stale(ledger.StateReady, ledger.StateLeased)},
		{"all dead", stale(ledger.StateReady, ledger.StateDead)},
		{"all finished", func(w *workload) { w.fill(many, 1); w.end(); w.Poll() }},
		{"all gone, beside a reader", func(w *workload) { // SQLite has no dead entries, but old pages
			pin, err := open(t.Context(), w.s.file.uri("query_only(1)"))
			if err == nil {
				_, err = pin.exec(t.Context(), "BEGIN", nil)
			}
			if err == nil {
				_, err = pin.exec(t.Context(), "SELECT count(*) FROM ledger_items", nil)
			}
			must.OK(t, err)
			w.T.Cleanup(func() { pin.close() })
			w.fill(many, 1)
			for _, st := range []ledger.State{ledger.StateWaiting, ledger.StateLeased, ledger.StateDead} {
				w.turn(st)
			}
			w.end()
			w.exec(`DELETE FROM ledger_attempts`)
			w.finished = false
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorkload(t)
			start := time.Now()
			c.prepare(w)
			t.Logf("prepared in %v", time.Since(start))
			w.check(t)
			t.Logf("done in %v", time.Since(start))
		})
	}
}

// A claim for a shard without ready items reads the ready items of the others, in their index and without the write
// lock, and nothing else.
func TestIdleShard(t *testing.T) {
	w := newWorkload(t)
	w.fill(many, 1)
	w.exec(`UPDATE ledger_backlog SET slot = slot / 4 * 4`) // shard 0 of 4
	for _, kind := range []string{"k", "other"} {
		w.ran()
		w.Claim(ledger.Claim{Kind: kind, Shard: scheduler.Shard{Index: 1, Count: 4}}, 0)
		ran := w.ran()
		steps := map[string]int{"k": 12*many + 50, "other": 50}[kind]
		// then whether the kind has limits
		if len(ran) != 2 || ran[1].steps > 50 || len(w.faults(t, storetest.Call{Indexes: []string{storetest.IndexReady}},
			ran[0], steps)) > 0 {
			t.Errorf("%s: %+v, at most %d steps", kind, ran, steps)
		}
	}
}
