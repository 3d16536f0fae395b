//go:build unix

package locks_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/ledgerd/ledgerd/internal/childtest"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/locks"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/ledger/txn"
)

func TestMain(m *testing.M) { childtest.Main(m) }

// A child process gets the kind and the URL of a place.
func init() {
	for name, run := range map[string]func(ctx context.Context, p *place, args []string) error{
		"holder": holder, "committer": committer} {
		childtest.Runs[name] = func(ctx context.Context, args []string) error {
			p, err := open(ctx, args[0], args[1])
			if err != nil {
				return err
			}
			return run(ctx, p, args[2:])
		}
	}
}

// place is a database with a ledger and the test's own tables.
type place struct {
	kind, url string
	locks     *locks.Manager
	conn      ledger.Conn // outside of transactions
	run       func(ctx context.Context, fn func(ctx context.Context, tx ledger.Conn) error) error
	inTx      func(ctx context.Context, name string, o locks.Options, fn func(ctx context.Context, tx ledger.Conn,
		l *locks.Lock) error) error
	close func()
}

// kinds are the kinds of places: one for each kind of connection pool.
var kinds = []string{"sqlite", "pgx", "postgres"}

// open opens a place: SQLite by the path of its file, Postgres by a URL with search_path.
func open(ctx context.Context, kind, at string) (*place, error) {
	p := &place{kind: kind, url: at}
	var store ledger.Store
	var err error
	if kind == "sqlite" {
		store, err = sqlite.Open(ctx, at, sqlite.Options{})
	} else {
		u, bad := url.Parse(at)
		if bad != nil {
			return nil, bad
		}
		schema, _, _ := strings.Cut(u.Query().Get("search_path"), ",")
		store, err = postgres.Connect(ctx, at, postgres.Options{Schema: schema})
	}
	if err != nil {
		return nil, err
	}
	p.locks = locks.New(ledger.New(store, ledger.Options{}))
	p.close = func() { _ = store.Close() }
	if err := p.openPool(ctx); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *place) openPool(ctx context.Context) error {
	if p.kind == "pgx" {
		pool, err := pgxpool.New(ctx, p.url)
		if err != nil {
			return err
		}
		transactions(p, postgres.DB(pool))
		p.conn = postgres.Wrap(pool)
		p.close = sequence(pool.Close, p.close)
		return nil
	}
	driver, dsn := "pgx", p.url
	if p.kind == "sqlite" {
		driver, dsn = "sqlite", "file:"+p.url+"?_pragma=busy_timeout(20000)"
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return err
	}
	db.SetMaxIdleConns(50) // the default of 2 closes most connections after one transaction
	p.close = sequence(func() { _ = db.Close() }, p.close)
	if p.kind == "sqlite" {
		transactions(p, sqlite.DB(db))
		p.conn = sqlite.Wrap(db)
	} else {
		transactions(p, postgres.SQLDB(db))
		p.conn = postgres.WrapSQL(db)
	}
	return nil
}

func sequence(first, then func()) func() { return func() { first(); then() } }

// transactions sets the functions of a place that run transactions, for any type of them.
func transactions[T any](p *place, db txn.DB[T]) {
	r := txn.New(db, txn.Config{})
	p.run = func(ctx context.Context, fn func(context.Context, ledger.Conn) error) error {
		return r.Run(ctx, func(ctx context.Context, tx T) error { return fn(ctx, r.Conn(tx)) })
	}
	p.inTx = func(ctx context.Context, name string, o locks.Options, fn func(context.Context, ledger.Conn,
		*locks.Lock) error) error {
		return locks.InTx(ctx, p.locks, r, name, o, func(ctx context.Context, tx T, l *locks.Lock) error {
			return fn(ctx, r.Conn(tx), l)
		})
	}
}

// onEach runs a test on an empty place of each kind.
func onEach(t *testing.T, test func(t *testing.T, p *place)) { on(t, kinds, test) }

// onBoth is onEach with one kind for each database.
func onBoth(t *testing.T, test func(t *testing.T, p *place)) { on(t, kinds[:2], test) }

func on(t *testing.T, kinds []string, test func(t *testing.T, p *place)) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel() // they mostly wait
			test(t, newPlace(t, kind, ""))
		})
	}
}

// newPlace makes a place. On Postgres path is appended to search_path.
func newPlace(t *testing.T, kind, path string) *place {
	t.Helper()
	at := filepath.Join(t.TempDir(), "ledger.db")
	if kind != "sqlite" {
		u, err := url.Parse(pgtest.URL(t))
		must.OK(t, err)
		q := u.Query()
		q.Set("search_path", pgtest.Schema(t)+path)
		u.RawQuery = q.Encode()
		at = u.String()
	}
	return openPlace(t, kind, at)
}

func openPlace(t *testing.T, kind, at string) *place {
	t.Helper()
	p, err := open(t.Context(), kind, at)
	must.OK(t, err)
	t.Cleanup(p.close)
	return p
}

// exec executes statements outside of transactions.
func (p *place) exec(t testing.TB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := p.conn.Exec(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// number returns the only value of a result.
func number(ctx context.Context, c ledger.Conn, query string, args ...any) (n int64, err error) {
	rows, err := c.Query(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	if !rows.Next() {
		return 0, errors.Join(rows.Err(), rows.Close(), pgx.ErrNoRows)
	}
	err = rows.Scan(&n)
	return n, errors.Join(err, rows.Close(), rows.Err())
}

func (p *place) number(t testing.TB, query string, args ...any) int64 {
	t.Helper()
	n, err := number(t.Context(), p.conn, query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// held returns the holder of a lock, nil if it is free.
func (p *place) held(t testing.TB, name string) *locks.HeldError {
	t.Helper()
	all, err := p.locks.Held(t.Context())
	must.OK(t, err)
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
	}
	return nil
}

func (p *place) spawn(t testing.TB, name string, args ...string) *childtest.Child {
	t.Helper()
	return childtest.Start(t, name, append([]string{p.kind, p.url}, args...)...)
}

// patience is how long a test waits for other processes.
const patience = 5 * time.Minute
