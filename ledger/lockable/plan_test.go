package lockable

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

// many is how many rows a big table has: so many that a plan that reads the whole table is noticed.
func many() int {
	if n, err := strconv.Atoi(os.Getenv("LEDGERD_TEST_ROWS")); err == nil {
		return n
	}
	return 20_000
}

type visit struct {
	Site string `db:"site,key"`
	No   int    `db:"no,key"`
}

var visits = Table{Name: "visit", LockID: "lock_id", Where: "done = 0", OrderBy: "wanted DESC",
	Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}

// setUp makes a table of n rows. One row in a hundred is held.
func setUp(t *testing.T, db ledger.Conn, n int, kind string) *Claimer[visit] {
	t.Helper()
	series, expiry, soon := `generate_series(1, $1::int) AS s (i)`, "timestamptz",
		`now() + (1000 + i) * interval '1 second'`
	if db.Dialect() == "sqlite" {
		series, expiry, soon = `(WITH RECURSIVE c (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < ?1) SELECT i FROM c)`, "INTEGER", `unixepoch('now') + 1000 + i`
	}
	for _, s := range []string{
		`CREATE TABLE visit (site text NOT NULL, no int NOT NULL, wanted int NOT NULL, done int NOT NULL DEFAULT 0, note text, locked_by text, expires_at ` + expiry + `, lock_id text, PRIMARY KEY (site, no))`,
		`CREATE INDEX visit_expires ON visit (expires_at)`,
		`CREATE INDEX visit_wanted ON visit (wanted DESC) ` + kind,
	} {
		must.Do(t)(db.Exec(t.Context(), s))
	}
	insert := `INSERT INTO visit (site, no, wanted, note, locked_by, expires_at) SELECT 'https://site-' || (i % 500) || '.example', i, (i % 100003 * 7919) % 1000003, 'a page about nothing in particular',
 CASE WHEN i % 100 = 0 THEN 'agent-' || (i / 100 % 20) END, CASE WHEN i % 100 = 0 THEN ` + soon + ` END FROM ` + series
	must.Do(t)(db.Exec(t.Context(), insert, n))
	c, err := New[visit](t.Context(), db, visits)
	must.OK(t, err)
	return c
}

// step is a node of a plan of Postgres, as it was executed.
type step struct {
	Type      string  `json:"Node Type"`
	Relation  string  `json:"Relation Name"`
	Index     string  `json:"Index Name"`
	Rows      float64 `json:"Actual Rows"`
	Loops     float64 `json:"Actual Loops"`
	Filtered  float64 `json:"Rows Removed by Filter"`
	Rechecked float64 `json:"Rows Removed by Index Recheck"`
	Plans     []step
}

// touched is how many rows of the table the plan looked at.
func (s *step) touched() (n float64) {
	if s.Relation == "visit" && s.Type != "ModifyTable" || strings.HasPrefix(s.Type, "Bitmap Index") {
		n = s.Loops * (s.Rows + s.Filtered + s.Rechecked)
	}
	for i := range s.Plans {
		n += s.Plans[i].touched()
	}
	return n
}

// TestPlansPostgres: statements touch few rows of a large table with any statistics.
func TestPlansPostgres(t *testing.T) {
	n := many()
	for _, kind := range []string{"", "WHERE locked_by IS NULL AND done = 0"} {
		states := []string{"analyzed", "never analyzed", "analyzed while empty", "expired", "expired since it was analyzed"}
		if kind == "" { // the planner must know that most rows are free, or else it sorts them
			states = states[:1]
		}
		for _, state := range states {
			t.Run(strings.TrimSpace(state+" "+kind), func(t *testing.T) {
				pool, err := pgxpool.New(t.Context(), pgtest.SchemaURL(t))
				must.OK(t, err)
				defer pool.Close()
				c := setUp(t, postgres.Wrap(pool), n, kind)
				run := func(statements ...string) {
					for _, s := range statements {
						must.Do(t)(pool.Exec(t.Context(), s))
					}
				}
				const gone = `UPDATE visit SET locked_by = 'gone', expires_at = now() - no * interval '1 ms'`
				switch state {
				case "analyzed":
					run("ANALYZE visit")
				case "never analyzed":
					run("ALTER TABLE visit SET (autovacuum_enabled = false)")
				case "analyzed while empty":
					run("ALTER TABLE visit SET (autovacuum_enabled = false)", "CREATE TABLE spare AS SELECT * FROM visit",
						"DELETE FROM visit WHERE no > 10", "VACUUM ANALYZE visit", "INSERT INTO visit SELECT * FROM spare WHERE no > 10")
				case "expired":
					run(gone, "VACUUM ANALYZE visit")
				default:
					run("ALTER TABLE visit SET (autovacuum_enabled = false)", "VACUUM ANALYZE visit", gone)
				}
				checkPostgres(t, pool, c, n)
			})
		}
	}
}

// checkPostgres runs each statement and counts what it touched.
func checkPostgres(t *testing.T, pool *pgxpool.Pool, c *Claimer[visit], n int) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	must.OK(t, err)
	defer tx.Rollback(context.Background())
	explain := func(name string, most int, query string, args []any) {
		t.Helper()
		var text string
		start := time.Now()
		err := tx.QueryRow(t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON) "+query, append([]any{pgx.QueryExecModeCacheDescribe},
			args...)...).Scan(&text)
		if err != nil {
			t.Fatalf("%v\n%s", err, query)
		}
		var plans []struct{ Plan step }
		must.OK(t, json.Unmarshal([]byte(text), &plans))
		touched := plans[0].Plan.touched()
		t.Logf("%-16s %6.0f of %d rows, %v", name, touched, n, time.Since(start).Round(100*time.Microsecond))
		if touched > float64(most) {
			t.Errorf("%s touches %.0f of %d rows, at most %d\n%s\n%s", name, touched, n, most, text, query)
		}
	}
	// A claim may read each held row three times, each candidate six times, and each row that it claims four times.
	held := n / 100
	query, args := c.plan.claimPostgres("agent-3", "t", 100)
	explain("claim", 3*held+6*candidates+4*100, query, args)
	query, args = c.plan.claimPostgres("somebody new", "t", 5)
	explain("claim of few", 3*held+6*candidates+4*5, query, args)
	query, args = c.plan.overdue(100)
	explain("release expired", 4*100+held, query, args)
	var keys [][]any
	for i := range 100 {
		keys = append(keys, []any{fmt.Sprintf("https://site-%d.example", i%500), i})
	}
	values := c.plan.params()
	query = c.plan.held(c.plan.freed(), values, "agent-3", keys, make([]string, len(keys)))
	explain("release", 4*100, query, values.args)
}

// TestPlansSQLite: each part of a statement goes by an index, and nothing is sorted but what was found.
func TestPlansSQLite(t *testing.T) {
	for _, kind := range []string{"", "WHERE locked_by IS NULL AND done = 0"} {
		for _, extra := range []string{"PRAGMA optimize", "CREATE INDEX visit_locked ON visit (locked_by)", "ANALYZE"} {
			t.Run(strings.TrimSpace(extra+" "+kind), func(t *testing.T) {
				db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "own.db"))
				must.OK(t, err)
				defer db.Close()
				conn := sqlite.Wrap(db)
				c := setUp(t, conn, 2000, kind)
				must.Do(t)(conn.Exec(t.Context(), extra))
				explain := func(query string, args []any) string {
					var plan strings.Builder
					err := rows(t.Context(), conn, "EXPLAIN QUERY PLAN "+query, args, func(scan func(...any) error) error {
						var id, parent, unused int
						var detail string
						err := scan(&id, &parent, &unused, &detail)
						fmt.Fprintf(&plan, "%d < %d %s\n", id, parent, detail)
						return err
					})
					must.OK(t, err)
					return plan.String()
				}
				whole := regexp.MustCompile(`SCAN visit( |$)(?m:$)`)
				pick, args := c.plan.pickSQLite("agent-3", 100)
				plan := explain(pick, args)
				for _, index := range []string{"USING INDEX visit_wanted", "USING INDEX visit_expires",
					"USING PRIMARY KEY|sqlite_autoindex_visit_1"} {
					if !regexp.MustCompile(index).MatchString(plan) {
						t.Errorf("nothing goes by %s\n%s", index, plan)
					}
				}
				if n := strings.Count(plan, "TEMP B-TREE FOR ORDER BY"); n > 2 || whole.MatchString(plan) {
					t.Errorf("sorts or reads the table\n%s", plan)
				}
				for name, statement := range map[string]func() (string, []any){
					"stamp":   func() (string, []any) { return c.plan.stampSQLite("a", "t", [][]any{{"x", 1}, {"y", 2}}) },
					"overdue": func() (string, []any) { return c.plan.overdue(100) },
					"held": func() (string, []any) {
						args := c.plan.params()
						return c.plan.held(c.plan.freed(), args, "a", [][]any{{"x", 1}, {"y", 2}}, []string{"t", "t"}), args.args
					},
				} {
					query, args := statement()
					if plan := explain(query, args); whole.MatchString(plan) {
						t.Errorf("%s reads the table\n%s", name, plan)
					}
				}
				t.Log(plan)
			})
		}
	}
}
