package txn_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/ledgerd/ledgerd/internal/childtest"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/ledger/txn"
)

func TestMain(m *testing.M) { childtest.Main(m) }

// runner is a Runner of any type of transactions.
type runner func(ctx context.Context, fn func(context.Context, ledger.Conn) error) error

func runnerOf[T any](db txn.DB[T], c txn.Config) runner {
	r := txn.New(db, c)
	return func(ctx context.Context, fn func(context.Context, ledger.Conn) error) error {
		return r.Run(ctx, func(ctx context.Context, tx T) error { return fn(ctx, r.Conn(tx)) })
	}
}

// place is a database and a pool on it.
type place struct {
	kind, url string
	with      func(txn.Config) runner // makes runners on the pool
	conn      ledger.Conn             // outside of transactions
	close     func()
}

func (p *place) postgres() bool { return p.kind != "sqlite" }

// kinds of places: the three DBs that there are.
var kinds = []string{"sqlite", "postgres", "pgx"}

// open opens a place by its kind and URL.
func open(ctx context.Context, kind, url string) (*place, error) {
	p := &place{kind: kind, url: url}
	switch kind {
	case "pgx":
		pool, err := pgxpool.New(ctx, url)
		if err != nil {
			return nil, err
		}
		p.with = func(c txn.Config) runner { return runnerOf(postgres.DB(pool), c) }
		p.conn, p.close = postgres.Wrap(pool), pool.Close
	case "postgres":
		db, err := sql.Open("pgx", url)
		if err != nil {
			return nil, err
		}
		db.SetMaxIdleConns(50) // the default of 2 closes most connections after one transaction
		p.with = func(c txn.Config) runner { return runnerOf(postgres.SQLDB(db), c) }
		p.conn, p.close = postgres.WrapSQL(db), func() { db.Close() }
	default:
		db, err := sql.Open("sqlite", url)
		if err != nil {
			return nil, err
		}
		p.with = func(c txn.Config) runner { return runnerOf(sqlite.DB(db), c) }
		p.conn, p.close = sqlite.Wrap(db), func() { db.Close() }
	}
	return p, nil
}

// onEach runs a test on an empty place of each kind.
func onEach(t *testing.T, test func(t *testing.T, p *place)) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) { test(t, newPlace(t, kind)) })
	}
}

func newPlace(t *testing.T, kind string) *place {
	t.Helper()
	return reopen(t, kind, newURL(t, kind))
}

// reopen opens a pool of its own on a place.
func reopen(t *testing.T, kind, url string) *place {
	t.Helper()
	p, err := open(t.Context(), kind, url)
	must.OK(t, err)
	t.Cleanup(p.close)
	return p
}

// newURL returns the URL of an empty place: a new file, or a new schema of Postgres. A superuser may also make Postgres
// look for deadlocks sooner than after a second.
func newURL(t *testing.T, kind string) string {
	t.Helper()
	if kind == "sqlite" {
		return "file:" + filepath.Join(t.TempDir(), "bank.db") + "?_pragma=journal_mode(wal)&_pragma=busy_timeout(60000)"
	}
	u := pgtest.SchemaURL(t)
	if pgtest.Setting(t, "is_superuser") == "on" {
		u += "&deadlock_timeout=30ms"
	}
	return u
}

// exec runs statements on the pool.
func (p *place) exec(t testing.TB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := p.conn.Exec(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// value is the only value of a result.
func value[V any](ctx context.Context, c ledger.Conn, query string, args ...any) (v V, err error) {
	rows, err := c.Query(ctx, query, args...)
	if err != nil {
		return v, err
	}
	defer rows.Close()
	if !rows.Next() {
		return v, errors.Join(rows.Err(), pgx.ErrNoRows)
	}
	if err := rows.Scan(&v); err != nil {
		return v, err
	}
	return v, errors.Join(rows.Close(), rows.Err())
}

func mustValue[V any](t testing.TB, p *place, query string, args ...any) V {
	t.Helper()
	v, err := value[V](t.Context(), p.conn, query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// through is the URL of a place by way of a proxy.
func through(t *testing.T, place string, cutter *pgtest.Cutter) string {
	t.Helper()
	direct, err := url.Parse(place)
	must.OK(t, err)
	proxy, err := url.Parse(cutter.URL)
	must.OK(t, err)
	direct.Host = proxy.Host
	return direct.String()
}
