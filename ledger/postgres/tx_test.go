package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// rig is a ledger in a schema of its own.
type rig struct {
	*ledger.Ledger
	store  *postgres.Store
	pool   *pgxpool.Pool
	schema string
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{pool: pgtest.Pool(t), schema: pgtest.Schema(t)}
	s, err := postgres.Open(t.Context(), r.pool, postgres.Options{Schema: r.schema})
	must.OK(t, err)
	t.Cleanup(func() { s.Close() })
	r.store, r.Ledger = s, ledger.New(s, ledger.Options{})
	return r
}

func (r *rig) add(t *testing.T, keys ...string) {
	t.Helper()
	items := make([]ledger.NewItem, len(keys))
	for i, k := range keys {
		items[i] = ledger.NewItem{Kind: "k", Key: k}
	}
	must.Do(t)(r.Add(t.Context(), items...))
}

func (r *rig) claim(t *testing.T, n int) []*ledger.Lease {
	t.Helper()
	ls, err := r.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: n})
	must.OK(t, err)
	return ls
}

func (r *rig) count(t *testing.T, f ledger.Filter) int64 {
	t.Helper()
	n, err := r.Count(t.Context(), f)
	must.OK(t, err)
	return n
}

func (r *rig) verify(t *testing.T) {
	t.Helper()
	for v, err := range r.Verify(t.Context()) {
		t.Errorf("%s, item %d: %s, %v", v.Rule, v.ItemID, v.Text, err)
	}
}

// begins are the ways in which a caller may begin a transaction, and how each ends.
func (r *rig) begins(t *testing.T) map[string]func() (tx ledger.Conn, commit, rollback func() error) {
	ctx := t.Context()
	db := stdlib.OpenDBFromPool(r.pool)
	t.Cleanup(func() { db.Close() })
	ways := map[string]func() (tx ledger.Conn, commit, rollback func() error){
		"pgx": func() (ledger.Conn, func() error, func() error) {
			tx, err := r.pool.Begin(ctx)
			must.OK(t, err)
			return postgres.Wrap(tx), func() error { return tx.Commit(ctx) }, func() error { return tx.Rollback(ctx) }
		},
	}
	for name, level := range map[string]sql.IsolationLevel{"sql": sql.LevelDefault, "sql, strict": sql.LevelSerializable} {
		ways[name] = func() (ledger.Conn, func() error, func() error) {
			tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
			must.OK(t, err)
			return postgres.WrapSQL(tx), tx.Commit, tx.Rollback
		}
	}
	return ways
}

// A conn that is no transaction would leave half of a batch behind.
func TestConnMustBeATransactionOfPgx(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	conn, err := r.pool.Acquire(ctx)
	must.OK(t, err)
	defer conn.Release()
	db := stdlib.OpenDBFromPool(r.pool)
	defer db.Close()
	other, err := sql.Open("sqlite", ":memory:")
	must.OK(t, err)
	defer other.Close()
	otherTx, err := other.BeginTx(ctx, nil)
	must.OK(t, err)
	defer otherTx.Rollback()
	ended, err := r.pool.Begin(ctx)
	must.OK(t, err)
	must.OK(t, ended.Rollback(ctx))
	endedSQL, err := db.BeginTx(ctx, nil)
	must.OK(t, err)
	must.OK(t, endedSQL.Rollback())
	for name, c := range map[string]struct {
		conn ledger.Conn
		want string
	}{
		"a pool":                      {postgres.Wrap(r.pool), "needs an open transaction"},
		"a connection":                {postgres.Wrap(conn.Conn()), "needs an open transaction"},
		"a database/sql handle":       {postgres.WrapSQL(db), "needs an open transaction"},
		"another driver":              {postgres.WrapSQL(other), "pgx's driver"},
		"another driver, transaction": {postgres.WrapSQL(otherTx), "pgx's driver"},
		"a conn of somebody else":     {foreign{}, "postgres.Wrap"},
		"an ended one":                {postgres.Wrap(ended), "tx: has ended"},
		"an ended one, database/sql":  {postgres.WrapSQL(endedSQL), "tx: has ended"},
		"nothing":                     {nil, "tx: is nil"},
		"nothing of pgx":              {postgres.Wrap(nil), "tx: is nil"},
		"no pool":                     {postgres.Wrap((*pgxpool.Pool)(nil)), "tx: is nil"},
		"no connection":               {postgres.WrapSQL((*sql.Conn)(nil)), "tx: is nil"},
		"nothing of database/sql":     {postgres.WrapSQL((*sql.Tx)(nil)), "tx: is nil"},
	} {
		_, err := r.AddTx(ctx, c.conn, ledger.NewItem{Kind: "k", Key: name})
		if text := fmt.Sprint(err, "; ", ledger.Hint(err)); !errors.Is(err, ledger.ErrInvalid) ||
			!strings.Contains(text, c.want) || strings.Contains(text, "rewrite") {
			t.Errorf("%s: got %v, want %q", name, text, c.want)
		}
	}
	if err := r.FinishTx(ctx, nil); !errors.Is(err, ledger.ErrInvalid) {
		t.Errorf("an end without a transaction: %v", err)
	}
	if n := r.count(t, ledger.Filter{}); n != 0 {
		t.Errorf("%d items were added", n)
	}
}

// A transaction that is not in the ledger's database would add to another ledger, or could not write.
func TestTxIsInTheDatabaseOfTheLedger(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	lease := func() *ledger.Lease { r.add(t, "leased"); return r.claim(t, 1)[0] }()
	open := func(url string) *pgxpool.Pool {
		pool, err := pgxpool.New(ctx, url)
		must.OK(t, err)
		t.Cleanup(pool.Close)
		return pool
	}
	other, empty := open(pgtest.Database(t)), open(pgtest.Database(t))
	in, err := postgres.Open(ctx, other, postgres.Options{Schema: r.schema})
	must.OK(t, err)
	defer in.Close()
	begin := func(pool *pgxpool.Pool, o pgx.TxOptions) pgx.Tx {
		tx, err := pool.BeginTx(ctx, o)
		must.OK(t, err)
		t.Cleanup(func() { tx.Rollback(context.WithoutCancel(ctx)) })
		return tx
	}
	name := func(pool *pgxpool.Pool) string { return pool.Config().ConnConfig.Database }
	db := stdlib.OpenDBFromPool(other)
	defer db.Close()
	otherTx, err := db.BeginTx(ctx, nil)
	must.OK(t, err)
	defer otherTx.Rollback()
	for _, c := range []struct {
		name string
		conn ledger.Conn
		want string
	}{
		{"another ledger", postgres.Wrap(begin(other, pgx.TxOptions{})),
			"tx: is in database " + name(other) + ", the ledger is in"},
		{"the same with database/sql", postgres.WrapSQL(otherTx),
			"tx: is in database " + name(other) + ", the ledger is in"},
		{"no ledger", postgres.Wrap(begin(empty, pgx.TxOptions{})),
			"tx: is in database " + name(empty) + " without a ledger in schema"},
		{"read only", postgres.Wrap(begin(r.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly})), "tx: is read only"},
	} {
		_, err := r.AddTx(ctx, c.conn, ledger.NewItem{Kind: "k", Key: c.name})
		if !errors.Is(err, ledger.ErrInvalid) || errors.Is(err, ledger.ErrUnavailable) ||
			!strings.HasPrefix(fmt.Sprint(err), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	err = r.FinishTx(ctx, postgres.Wrap(begin(other, pgx.TxOptions{})),
		ledger.Ending{Lease: lease, Result: ledger.Done(nil)})
	if !errors.Is(err, ledger.ErrInvalid) {
		t.Errorf("an end: %v", err)
	}
	if n, err := ledger.New(in, ledger.Options{}).Count(ctx, ledger.Filter{}); n != 0 || err != nil {
		t.Errorf("%d items in the other ledger, %v", n, err)
	}
}

// A session of the caller's that has worked on a ledger works on one that is made in its place. Nothing of ours is
// prepared in it by name, since there may be a pooler before the server.
func TestSessionOfTheCaller(t *testing.T) {
	ctx, schema := t.Context(), pgtest.Schema(t)
	config, err := pgxpool.ParseConfig(pgtest.URL(t))
	must.OK(t, err)
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(ctx, config)
	must.OK(t, err)
	defer pool.Close()
	for range 2 {
		s, err := postgres.Open(ctx, pool, postgres.Options{Schema: schema})
		must.OK(t, err)
		must.OK(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := ledger.New(s, ledger.Options{}).AddTx(ctx, postgres.Wrap(tx), ledger.NewItem{Kind: "k", Key: "x"})
			return err
		}))
		must.OK(t, s.Close())
		var prepared int
		must.OK(t, pool.QueryRow(ctx, "SELECT count(*) FROM pg_prepared_statements WHERE name <> ''",
			pgx.QueryExecModeExec).Scan(&prepared))
		if prepared > 0 {
			t.Errorf("%d prepared statements", prepared)
		}
		_, err = pool.Exec(ctx, "DROP SCHEMA "+schema+" CASCADE; CREATE SCHEMA "+schema)
		must.OK(t, err)
	}
}

// A closed pool, or a closed ledger, cannot come back: a worker ends.
func TestClosed(t *testing.T) {
	for name, closing := range map[string]func(*rig){"pool": func(r *rig) { r.pool.Close() },
		"ledger": func(r *rig) { r.store.Close() }} {
		r := newRig(t)
		var err error
		r.pool, err = pgxpool.New(t.Context(), pgtest.URL(t))
		must.OK(t, err)
		r.store, err = postgres.Open(t.Context(), r.pool, postgres.Options{Schema: r.schema})
		must.OK(t, err)
		w, err := worker.New(worker.Config{Ledger: ledger.New(r.store, ledger.Options{}), Poll: time.Millisecond,
			Logger: slog.New(slog.DiscardHandler)})
		must.OK(t, err)
		closing(r)
		if err := w.Run(t.Context()); !errors.Is(err, ledger.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		r.store.Close()
		r.pool.Close()
	}
}

type foreign struct{}

func (foreign) Dialect() string                                            { return "other" }
func (foreign) Exec(context.Context, string, ...any) (int64, error)        { panic("called") }
func (foreign) Query(context.Context, string, ...any) (ledger.Rows, error) { panic("called") }

// Transactions that lock in opposite orders: the database undoes one, and it runs again.
func TestDeadlocksAreRepeated(t *testing.T) {
	r := newRig(t)
	r.add(t, "1", "2")
	ids := []int64{r.claim(t, 1)[0].ID, r.claim(t, 1)[0].ID}
	var met sync.WaitGroup
	met.Add(2)
	var wg sync.WaitGroup
	runs := [2]int{}
	for i := range 2 {
		wg.Go(func() {
			err := r.store.Update(t.Context(), nil, func(tx ledger.Tx) error {
				runs[i]++
				if _, err := tx.Load(ids[i : i+1]); err != nil {
					return err
				}
				if runs[i] == 1 {
					met.Done()
					met.Wait()
				}
				_, err := tx.Load(ids[1-i : 2-i])
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if runs[0]+runs[1] < 3 {
		t.Errorf("%d and %d runs: they did not meet", runs[0], runs[1])
	}
}

// Adds and emitted children of the same keys, in every order: no caller sees a deadlock.
func TestConcurrentAddsOfTheSameKeys(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	var parents []string
	for i := range 80 {
		parents = append(parents, fmt.Sprint("parent ", i))
	}
	r.add(t, parents...)
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(c), 3))
			batch := func(fingerprint string) []ledger.NewItem {
				var items []ledger.NewItem
				for _, k := range rnd.Perm(100) {
					items = append(items, ledger.NewItem{Kind: []string{"j", "l"}[k%2], Scope: "s", Key: fmt.Sprint(k),
						Fingerprint: fingerprint})
				}
				return items
			}
			for round := range 10 {
				if _, err := r.Add(ctx, batch(fmt.Sprint("f", round))...); err != nil {
					t.Error(err)
				}
				ls, err := r.Claim(ctx, ledger.Claim{Kind: "k", Agent: fmt.Sprint(c), Limit: 1})
				if err != nil {
					t.Error(err)
				}
				for _, lease := range ls {
					if err := r.Finish(ctx, ledger.Ending{Lease: lease, Result: ledger.Done(nil, batch("")...)})[0]; err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if n := r.count(t, ledger.Filter{Scopes: []string{"s"}}); n != 100 {
		t.Errorf("%d items, want 100", n)
	}
	r.verify(t)
}

// With any plan, a claim leases no more than asked.
func TestClaimNeverTakesMore(t *testing.T) {
	config, err := pgxpool.ParseConfig(pgtest.URL(t))
	must.OK(t, err)
	config.MaxConns = 10
	for _, off := range []string{"enable_hashjoin", "enable_hashagg", "enable_sort", "enable_material"} {
		config.ConnConfig.RuntimeParams[off] = "off"
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	must.OK(t, err)
	defer pool.Close()
	schema := pgtest.Schema(t)
	s, err := postgres.Open(t.Context(), pool, postgres.Options{Schema: schema})
	must.OK(t, err)
	defer s.Close()
	l := ledger.New(s, ledger.Options{})
	must.Do(t)(pool.Exec(t.Context(), "ALTER TABLE "+pgx.Identifier{schema}.Sanitize()+
		".ledger_backlog SET (autovacuum_enabled = false)"))
	const n, claimers = 3000, 8
	items := make([]ledger.NewItem, n)
	for i := range items {
		items[i] = ledger.NewItem{Kind: "k", Key: fmt.Sprint(i), Priority: int16(i%5 - 2)}
	}
	must.Do(t)(l.Add(t.Context(), items...))
	var seen sync.Map
	var wg sync.WaitGroup
	for c := range claimers {
		wg.Go(func() {
			for limit := 1; !t.Failed(); limit = limit%7 + 1 {
				ls, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: fmt.Sprint(c), Limit: limit, TTL: time.Hour})
				if err != nil {
					t.Error(err)
					return
				}
				if len(ls) > limit {
					t.Errorf("claimed %d, asked for %d", len(ls), limit)
				}
				for _, lease := range ls {
					if _, twice := seen.LoadOrStore(lease.ID, true); twice {
						t.Errorf("item %d was leased twice", lease.ID)
					}
				}
				if len(ls) == 0 {
					s, err := l.Standing(t.Context(), "k")
					if err != nil {
						t.Error(err)
					}
					if s.Ready == 0 {
						return
					}
				}
			}
		})
	}
	wg.Wait()
	leased := 0
	seen.Range(func(any, any) bool { leased++; return true })
	if leased != n {
		t.Errorf("%d of %d items were leased", leased, n)
	}
}
