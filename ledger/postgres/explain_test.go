package postgres

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger/storetest"
)

// rowsEnv sets how many rows a big table has in the tests of plans.
const rowsEnv = "LEDGERD_TEST_ROWS"

// many is how many rows a big table has: so many that a plan that reads the whole table is noticed.
var many = manyRows()

func manyRows() int {
	if n, err := strconv.Atoi(os.Getenv(rowsEnv)); err == nil {
		return n
	}
	return 30_000
}

// allStates reports whether the plans are looked at in all states of the tables, as make test-large does.
func allStates() bool { return os.Getenv(rowsEnv) != "" }

// watched is a ledger on a single connection, so that all its statements share the state of the connection. The server
// sends that connection the plan of each statement as it was executed, with the rows that it read. So the tests need no
// copy of the SQL, its arguments or the session.
type watched struct {
	*Store
	direct *pgxpool.Pool // past the ledger, and not watched

	mu    sync.Mutex
	plans []explained
}

// planServer is a server that explains statements, without autovacuum: only the test changes statistics and dead rows.
func planServer(t *testing.T) string {
	return pgtest.Start(t, pgtest.Options{Settings: map[string]string{
		"autovacuum": "off", "session_preload_libraries": "auto_explain", "auto_explain.log_analyze": "on",
		"auto_explain.log_buffers": "on", "auto_explain.log_timing": "off", "auto_explain.log_format": "json",
		"auto_explain.log_level": "notice", "shared_buffers": "512MB", "max_wal_size": "4GB", "synchronous_commit": "off",
	}}).URL()
}

// watch opens an empty ledger in a schema of its own, on a pool with this configuration.
func watch(t *testing.T, config *pgxpool.Config, schema string) *watched {
	t.Helper()
	w := &watched{}
	w.open(t, config, true, schema)
	return w
}

func (w *watched) open(t *testing.T, config *pgxpool.Config, explains bool, schema string) {
	t.Helper()
	open := func(config *pgxpool.Config) *pgxpool.Pool {
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		must.OK(t, err)
		t.Cleanup(pool.Close)
		return pool
	}
	direct := config.Copy()
	direct.AfterConnect = nil // it would end transactions that idle
	w.direct = open(direct)
	_, err := w.direct.Exec(t.Context(), "CREATE SCHEMA "+schema)
	must.OK(t, err)
	if explains {
		w.explaining(t, config)
	}
	if w.Store, err = Open(t.Context(), open(config), Options{Schema: schema}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Store.Close() })
}

// explaining makes a configuration one of a single connection, and collects the plans of its statements.
func (w *watched) explaining(t *testing.T, config *pgxpool.Config) *pgxpool.Config {
	config.MaxConns = 1
	config.ConnConfig.RuntimeParams["auto_explain.log_min_duration"] = "0"
	config.ConnConfig.RuntimeParams["client_min_messages"] = "notice" // our sessions ask for warnings only
	config.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { w.notice(t, n.Message) }
	return config
}

// watchHot is watch with a pool of the hot path: only the statements of that pool are explained.
func watchHot(t *testing.T, url, schema string) *watched {
	t.Helper()
	config, err := poolConfig(url)
	must.OK(t, err)
	hot := splitPool(config)
	w := &watched{}
	w.open(t, config, false, schema)
	pool, err := pgxpool.NewWithConfig(t.Context(), w.explaining(t, hot))
	must.OK(t, err)
	t.Cleanup(pool.Close)
	w.Store.hot = pool
	return w
}

// exec runs SQL past the ledger.
func (w *watched) exec(t testing.TB, template string, args ...any) {
	t.Helper()
	if _, err := w.direct.Exec(t.Context(), w.render(template), append([]any{pgx.QueryExecModeExec},
		args...)...); err != nil {
		t.Fatalf("%v\n%s", err, template)
	}
}

func (w *watched) notice(t *testing.T, text string) {
	_, plan, ok := strings.Cut(text, "plan:\n")
	if !ok {
		return
	}
	e := explained{text: plan}
	if err := json.Unmarshal([]byte(plan), &e); err != nil {
		t.Errorf("%v\n%s", err, plan)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.plans = append(w.plans, e)
}

// during returns the plans of all that fn makes the ledger execute.
func (w *watched) during(fn func()) []explained {
	w.mu.Lock()
	w.plans = nil
	w.mu.Unlock()
	fn()
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.plans)
}

// explained is a statement that was executed.
type explained struct {
	Query string `json:"Query Text"`
	Plan  node
	text  string
}

// node is a part of a plan.
type node struct {
	Type        string  `json:"Node Type"`
	Relation    string  `json:"Relation Name"`
	Index       string  `json:"Index Name"`
	Condition   string  `json:"Index Cond"`
	Rows        float64 `json:"Actual Rows"`
	Loops       float64 `json:"Actual Loops"`
	Filtered    float64 `json:"Rows Removed by Filter"`
	Rechecked   float64 `json:"Rows Removed by Index Recheck"`
	NotJoined   float64 `json:"Rows Removed by Join Filter"`
	HitBlocks   float64 `json:"Shared Hit Blocks"`
	ReadBlocks  float64 `json:"Shared Read Blocks"`
	HeapFetches float64 `json:"Heap Fetches"`
	Plans       []*node
}

// touched are the rows, or entries of an index, that the node itself looked at.
func (n *node) touched() float64 {
	return n.Loops * (n.Rows + n.Filtered + n.Rechecked + n.NotJoined)
}

// big reports whether the node scans a table that grows.
func (n *node) big() bool {
	switch n.Relation {
	case "ledger_items", "ledger_backlog", "ledger_attempts":
		return strings.HasSuffix(n.Type, "Scan")
	}
	return strings.HasPrefix(n.Index, "ledger_backlog") // a bitmap's index scan names no table
}

func (n *node) walk(fn func(*node)) {
	fn(n)
	for _, p := range n.Plans {
		p.walk(fn)
	}
}

// shape is the plan without its figures, and without Memoize nodes: these cost almost nothing.
func (n *node) shape(depth int) string {
	if n.Type == "Memoize" {
		return n.Plans[0].shape(depth)
	}
	text := fmt.Sprintf("%*s%s %s %s %s\n", 2*depth, "", n.Type, n.Relation, n.Index, n.Condition)
	for _, p := range n.Plans {
		text += p.shape(depth + 1)
	}
	return text
}

// blocks is how often the statement looked at a page.
func (e *explained) blocks() (most float64) {
	e.Plan.walk(func(n *node) { most = max(most, n.HitBlocks+n.ReadBlocks) })
	return most
}

// indexName is the name of an index in [storetest.Call].
func indexName(name string) string {
	if name == "ledger_items_kind_scope_key_key" {
		return storetest.IndexIdentity
	}
	return name
}

// planBounds are what a statement may do.
type planBounds struct {
	indexes []string // that it may use, beside primary keys
	rows    int      // that each of its scans may touch
	blocks  int      // that all of it may look at
	passed  int      // rows leased by others that a claim may additionally touch in an index
}

// versions is how many versions of a row updates in quick succession leave behind.
const versions = 4

// faults are what a statement did beyond its bounds.
func (e *explained) faults(b planBounds) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	e.Plan.walk(func(n *node) {
		if n.Loops == 0 {
			return
		}
		if n.NotJoined*n.Loops > float64(10*b.rows) {
			fault("a %s tries %.0f pairs of rows in vain", n.Type, n.NotJoined*n.Loops)
		}
		if !n.big() {
			return
		}
		limit := float64(b.rows)
		switch n.Type {
		case "Tid Scan": // of rows that were found before
		case "Seq Scan", "Bitmap Heap Scan": // of a table with so few rows as it may touch, the former is the best
		case "Bitmap Index Scan": // counts what updates of the same rows have left behind, too
			limit *= versions
			fallthrough
		default:
			if !strings.HasSuffix(n.Index, "_pkey") && !slices.Contains(b.indexes, indexName(n.Index)) {
				fault("a %s goes by %q", n.Type, n.Index)
			}
		}
		if n.Index == storetest.IndexReady {
			limit += float64(b.passed)
		}
		if n.touched() > limit {
			fault("a %s of %s %s touches %.0f rows, %.0f at most", n.Type, n.Relation, n.Index, n.touched(), limit)
		}
	})
	if got := e.blocks(); got > float64(b.blocks) {
		fault("looks at %.0f blocks, %d at most", got, b.blocks)
	}
	return faults
}
