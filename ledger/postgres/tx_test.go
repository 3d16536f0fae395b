package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
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
	if _, err := r.Add(t.Context(), items...); err != nil {
		t.Fatal(err)
	}
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

// callersTx is a transaction of the caller's, over one of the two APIs.
type callersTx struct {
	conn             ledger.Conn
	exec             func(query string) error
	commit, rollback func() error
}

// begins are the ways in which a caller may begin a transaction.
func (r *rig) begins(t *testing.T) map[string]func() callersTx {
	ctx := t.Context()
	db := stdlib.OpenDBFromPool(r.pool)
	t.Cleanup(func() { db.Close() })
	return map[string]func() callersTx{
		"pgx.Tx": func() callersTx {
			tx, err := r.pool.Begin(ctx)
			must.OK(t, err)
			return callersTx{postgres.Wrap(tx), func(q string) error { _, err := tx.Exec(ctx, q); return err },
				func() error { return tx.Commit(ctx) }, func() error { return tx.Rollback(ctx) }}
		},
		"sql.Tx": func() callersTx {
			tx, err := db.BeginTx(ctx, nil)
			must.OK(t, err)
			return callersTx{postgres.WrapSQL(tx), func(q string) error { _, err := tx.ExecContext(ctx, q); return err },
				tx.Commit, tx.Rollback}
		},
		"sql.Tx, serializable": func() callersTx {
			tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable})
			must.OK(t, err)
			return callersTx{postgres.WrapSQL(tx), func(q string) error { _, err := tx.ExecContext(ctx, q); return err },
				tx.Commit, tx.Rollback}
		},
	}
}

func TestAddInTheCallersTransaction(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	for name, begin := range r.begins(t) {
		t.Run(name, func(t *testing.T) {
			mine := r.schema + ".mine_" + strings.Map(func(c rune) rune {
				if c >= 'a' && c <= 'z' {
					return c
				}
				return '_'
			}, name)
			if _, err := r.pool.Exec(ctx, "CREATE TABLE "+mine+" (id int)"); err != nil {
				t.Fatal(err)
			}
			rows := func() (n int) {
				must.OK(t, r.pool.QueryRow(ctx, "SELECT count(*) FROM "+mine).Scan(&n))
				return n
			}
			for _, commits := range []bool{false, true} {
				tx := begin()
				must.OK(t, tx.exec("INSERT INTO "+mine+" VALUES (1)"))
				item := ledger.NewItem{Kind: "k", Scope: name, Key: "x", Payload: []byte("\x00\xff"), Fingerprint: "f",
					Due: time.Now().Add(time.Hour), Source: "test"}
				for _, want := range []ledger.Verdict{ledger.VerdictAdded, ledger.VerdictKnown} {
					got, err := r.AddTx(ctx, tx.conn, item)
					if err != nil || got[0].Verdict != want || got[0].State != ledger.StateWaiting || got[0].ID == 0 {
						t.Fatalf("%+v, %v; want %s", got, err, want)
					}
				}
				item.Fingerprint, item.Payload = "g", []byte("new")
				if got, err := r.AddTx(ctx, tx.conn, item); err != nil || got[0].Verdict != ledger.VerdictChanged {
					t.Fatalf("%+v, %v", got, err)
				}
				if n := r.count(t, ledger.Filter{Scopes: []string{name}}); n != 0 {
					t.Fatalf("%d items are seen before the commit", n)
				}
				end, want := tx.rollback, 0
				if commits {
					end, want = tx.commit, 1
				}
				must.OK(t, end())
				if n := r.count(t, ledger.Filter{Scopes: []string{name}}); n != int64(want) || rows() != want {
					t.Fatalf("commit %v: %d items and %d rows, want %d", commits, n, rows(), want)
				}
			}
			it, err := r.Find(ctx, "k", name, "x")
			if err != nil || it.Fingerprint != "g" || string(it.Payload) != "new" {
				t.Fatalf("%+v, %v", it, err)
			}
		})
	}
	r.verify(t)
}

func TestFinishInTheCallersTransaction(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	for name, begin := range r.begins(t) {
		t.Run(name, func(t *testing.T) {
			r.add(t, name+" 1", name+" 2", name+" 3", name+" 4")
			ls := r.claim(t, 4)
			all := []ledger.Ending{{Lease: ls[0], Result: ledger.Done(nil)}, {Lease: ls[1], Result: ledger.Done([]byte("out"))},
				{Lease: ls[2], Result: ledger.RetryAfter(time.Hour, errors.New("no"))}, {Lease: ls[3],
					Result: ledger.Done(nil, ledger.NewItem{Kind: "j", Key: name})}}
			done := func() int64 {
				return r.count(t, ledger.Filter{Kinds: []string{"k"}, Prefix: name + " ", States: []ledger.State{ledger.StateDone}})
			}
			tx := begin()
			must.OK(t, r.FinishTx(ctx, tx.conn, all...))
			must.OK(t, tx.rollback())
			if n := done(); n != 0 {
				t.Fatalf("%d are done after a rollback", n)
			}
			tx = begin()
			must.OK(t, r.FinishTx(ctx, tx.conn, all...))
			must.OK(t, tx.commit())
			if n := done(); n != 3 {
				t.Fatalf("%d are done after the commit", n)
			}
			if it, err := r.Get(ctx, ls[2].ID); err != nil || it.State != ledger.StateWaiting || it.Failures != 1 {
				t.Fatalf("%+v, %v", it, err)
			}
			if _, err := r.Find(ctx, "j", fmt.Sprintf("k/%d", ls[3].ID), name); err != nil {
				t.Fatalf("the emitted item: %v", err)
			}
			stale := *ls[0]
			stale.Attempt, stale.LockID[0] = 7, stale.LockID[0]+1
			tx = begin()
			if err := r.FinishTx(ctx, tx.conn, ledger.Ending{Lease: &stale, Result: ledger.Done(nil)}); !errors.Is(err,
				ledger.ErrLeaseLost) {
				t.Fatalf("a lease that is none: %v", err)
			}
			must.OK(t, tx.rollback())
		})
	}
	r.verify(t)
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
	} {
		_, err := r.AddTx(ctx, c.conn, ledger.NewItem{Kind: "k", Key: name})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	if n := r.count(t, ledger.Filter{}); n != 0 {
		t.Errorf("%d items were added", n)
	}
}

type foreign struct{}

func (foreign) Dialect() string                                            { return "other" }
func (foreign) Exec(context.Context, string, ...any) (int64, error)        { panic("called") }
func (foreign) Query(context.Context, string, ...any) (ledger.Rows, error) { panic("called") }

// Conns serve other packages, too, with rows of both APIs.
func TestConnQueries(t *testing.T) {
	r := newRig(t)
	db := stdlib.OpenDBFromPool(r.pool)
	defer db.Close()
	for name, conn := range map[string]ledger.Conn{"pgx": postgres.Wrap(r.pool), "database/sql": postgres.WrapSQL(db)} {
		t.Run(name, func(t *testing.T) {
			table := r.schema + ".conn_" + name[:3]
			if _, err := conn.Exec(t.Context(), "CREATE TABLE "+table+" (a int, b text)"); err != nil {
				t.Fatal(err)
			}
			n, err := conn.Exec(t.Context(), "INSERT INTO "+table+" SELECT * FROM unnest($1::int[], $2::text[])", []int32{1, 2},
				[]string{"x", "y"})
			if err != nil || n != 2 {
				t.Fatalf("%d rows, %v", n, err)
			}
			rows, err := conn.Query(t.Context(), "SELECT a, b FROM "+table+" ORDER BY a")
			must.OK(t, err)
			defer rows.Close()
			var got []string
			for rows.Next() {
				var a int
				var b string
				must.OK(t, rows.Scan(&a, &b))
				got = append(got, fmt.Sprint(a, b))
			}
			if err := errors.Join(rows.Err(), rows.Close()); err != nil || strings.Join(got, " ") != "1x 2y" {
				t.Fatalf("%q, %v", got, err)
			}
			if _, err := conn.Query(t.Context(), "SELECT nothing"); err == nil {
				t.Error("a wrong query has no error")
			}
		})
	}
}

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
	if _, err := pool.Exec(t.Context(), "ALTER TABLE "+pgx.Identifier{schema}.Sanitize()+
		".ledger_backlog SET (autovacuum_enabled = false)"); err != nil {
		t.Fatal(err)
	}
	const n, claimers = 3000, 8
	items := make([]ledger.NewItem, n)
	for i := range items {
		items[i] = ledger.NewItem{Kind: "k", Key: fmt.Sprint(i), Priority: int16(i%5 - 2)}
	}
	if _, err := l.Add(t.Context(), items...); err != nil {
		t.Fatal(err)
	}
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
