package postgres

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
)

// many is a backlog on which a bad plan shows: one that reads it as a whole touches that many rows.
const many = 200_000

// batch is what a claim takes.
const batch = 500

// promise is what a first claim, and a first finish, may take; slow machines get five times that.
const promise = 5 * 100 * time.Millisecond

// oneConn is a store over a pool of a single connection, so that all its statements share what
// the connection remembers.
func oneConn(t *testing.T) (*Store, *ledger.Ledger) {
	t.Helper()
	config, err := pgxpool.ParseConfig(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s, err := Open(t.Context(), pool, Options{Schema: pgtest.Schema(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, ledger.New(s, ledger.Options{})
}

func (s *Store) exec(t *testing.T, template string, args ...any) {
	t.Helper()
	if _, err := s.pool.Exec(t.Context(), s.render(template), append([]any{pgx.QueryExecModeExec}, args...)...); err != nil {
		t.Fatal(err)
	}
}

// withoutAutovacuum keeps the statistics as a test has them.
func (s *Store) withoutAutovacuum(t *testing.T) {
	for _, table := range []string{"items", "backlog", "attempts"} {
		s.exec(t, `ALTER TABLE {{S}}.ledger_`+table+` SET (autovacuum_enabled = false)`)
	}
}

// addMany adds n items to a scope of their own.
func addMany(t *testing.T, l *ledger.Ledger, scope string, n int) {
	t.Helper()
	for from := 0; from < n; from += 5000 {
		items := make([]ledger.NewItem, 5000)
		for i := range items {
			items[i] = ledger.NewItem{Kind: "k", Scope: scope, Key: fmt.Sprintf("/data/in/2026/11/20/users-%08d.csv", from+i)}
		}
		if _, err := l.Add(t.Context(), items...); err != nil {
			t.Fatal(err)
		}
	}
}

// An hour of polls of an empty ledger must not leave plans for an empty table behind.
func TestFirstClaimAfterIdlePolls(t *testing.T) {
	s, l := oneConn(t)
	s.withoutAutovacuum(t)
	addMany(t, l, "early", 5000)
	for range 10 { // so that finishing is known as well, on a small table
		if n := len(claimed(t, l)); n != batch {
			t.Fatalf("claimed %d", n)
		}
	}
	s.exec(t, `DELETE FROM {{S}}.ledger_backlog`)
	s.exec(t, `VACUUM ANALYZE {{S}}.ledger_backlog`)
	for range 20 {
		if ls, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: batch}); err != nil || len(ls) != 0 {
			t.Fatalf("claimed %d, %v", len(ls), err)
		}
		if _, err := l.Expire(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Promote(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	addMany(t, l, "late", many)
	s.byIndex(t)
	start := time.Now()
	ls := claimed(t, l)
	if d := time.Since(start); len(ls) != batch || d > promise {
		t.Errorf("the first claim got %d items in %v", len(ls), d)
	}
	start = time.Now()
	finish(t, l, ls)
	if d := time.Since(start); d > promise {
		t.Errorf("the first finish took %v", d)
	}
}

// Whatever the rows were when the statistics were taken, statements go by the same indexes.
func TestPlansOnStaleStatistics(t *testing.T) {
	s, l := oneConn(t)
	s.withoutAutovacuum(t)
	for _, n := range []int{5000, 25_000} { // of this size, a table is tempting to read as a whole
		addMany(t, l, fmt.Sprint("first ", n), n)
		s.exec(t, `VACUUM ANALYZE {{S}}.ledger_backlog`)
		s.byIndex(t)
	}
	addMany(t, l, "last", many)
	for _, c := range []struct{ name, state string }{
		{"waiting", `state = 0`},
		{"leased", `state = 2, locked_by = 'x', lock_id = gen_random_uuid(), leased_at = now(), expires_at = now() + '1 hour'`},
		{"dead", `state = 3`},
		{"ready", `state = 1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.exec(t, `UPDATE {{S}}.ledger_backlog SET `+c.state)
			s.exec(t, `VACUUM ANALYZE {{S}}.ledger_backlog`)
			s.exec(t, `UPDATE {{S}}.ledger_backlog SET state = 1, locked_by = NULL, lock_id = NULL, leased_at = NULL, expires_at = NULL`)
			s.positions.lower(nil, nil, []string{"k"})
			s.byIndex(t)
			ls := claimed(t, l)
			start := time.Now()
			finish(t, l, ls)
			if d := time.Since(start); d > promise {
				t.Errorf("the first finish took %v", d)
			}
		})
	}
}

func claimed(t *testing.T, l *ledger.Ledger) []*ledger.Lease {
	t.Helper()
	ls, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: batch})
	if err != nil {
		t.Fatal(err)
	}
	return ls
}

func finish(t *testing.T, l *ledger.Ledger, ls []*ledger.Lease) {
	t.Helper()
	e := make([]ledger.Ending, len(ls))
	for i, lease := range ls {
		e[i] = ledger.Ending{Lease: lease, Result: ledger.Done(nil)}
	}
	for i, err := range l.Finish(t.Context(), e...) {
		if err != nil {
			t.Fatalf("finishing %s: %v", ls[i].Token(), err)
		}
	}
}

// byIndex claims a batch in a transaction that it undoes, and wants of each statement of the hot
// path that it touches few rows and reads no table as a whole.
func (s *Store) byIndex(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	lock := uuid.New()
	c := s.newClaim(ledger.Grant{Claim: ledger.Claim{Kind: "k", Agent: "a", Limit: batch, TTL: time.Minute}, LockID: lock})
	template, args := c.statement()
	s.positions.failed(c.walks[:]...)
	s.explain(t, tx, template, args)

	var refs []ledger.LeaseRef
	var ids []int64
	rows, err := tx.Query(ctx, s.render(`SELECT item_id FROM {{S}}.ledger_backlog WHERE lock_id = $1`), lock)
	if err != nil {
		t.Fatal(err)
	}
	ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil || len(ids) != batch {
		t.Fatalf("claimed %d, %v", len(ids), err)
	}
	done := make([]ledger.Completion, batch)
	for i, id := range ids {
		refs = append(refs, ledger.LeaseRef{ItemID: id, LockID: lock})
		done[i] = ledger.Completion{LeaseRef: refs[i], Outcome: ledger.OutcomeDone}
	}
	sorted, locks := references(refs)
	s.explain(t, tx, renewTemplate, []any{sorted, locks, time.Minute})
	s.explain(t, tx, startTemplate, []any{sorted, locks, time.Minute})
	s.explain(t, tx, expiredTemplate, []any{batch, time.Time{}, nil})
	s.explain(t, tx, promoteTemplate, []any{batch, []string{}, []time.Time{}})
	s.explain(t, tx, lockItems, []any{sorted})
	s.explain(t, tx, lockBacklog, []any{sorted})
	s.explain(t, tx, loadTemplate, []any{sorted})
	done[0].Code = "some" // the general statement for the first half, the plain one for the other
	slices.SortFunc(done, func(a, b ledger.Completion) int { return int(a.ItemID - b.ItemID) })
	template, args = completion(done[:batch/2])
	s.explain(t, tx, template, args)
	template, args = completion(done[batch/2:])
	s.explain(t, tx, template, args)
}

// touched bounds the rows that a statement on a batch may touch, per batch: a few look-ups each.
const touched = 20

func (s *Store) explain(t *testing.T, tx pgx.Tx, template string, args []any) {
	t.Helper()
	var text string
	err := tx.QueryRow(t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON) "+s.render(template), append([]any{pgx.QueryExecModeCacheDescribe}, args...)...).Scan(&text)
	if err != nil {
		t.Fatalf("%v\n%s", err, template)
	}
	var plans []struct{ Plan node }
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		t.Fatal(err)
	}
	var seen float64
	plans[0].Plan.walk(func(n *node) {
		seen += n.Loops * (n.Rows + n.Removed)
		if strings.HasSuffix(n.Type, "Seq Scan") && n.Relation != "ledger_kinds" && n.Loops*(n.Rows+n.Removed) > batch {
			t.Errorf("a %s of %s:\n%s\n%s", n.Type, n.Relation, template, text)
		}
	})
	if seen > touched*batch {
		t.Errorf("%.0f rows for a batch of %d:\n%s\n%s", seen, batch, template, text)
	}
}

// node is a part of a plan.
type node struct {
	Type     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Rows     float64 `json:"Actual Rows"`
	Loops    float64 `json:"Actual Loops"`
	Removed  float64 `json:"Rows Removed by Filter"`
	Plans    []*node
}

func (n *node) walk(fn func(*node)) {
	fn(n)
	for _, p := range n.Plans {
		p.walk(fn)
	}
}
