package typed_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/ledger/typed"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Mail is the payload of the tests.
type Mail struct {
	To   string `json:"to"`
	Text string `json:"text,omitempty"`
}

func to(m Mail) string { return m.To }

// A place is a ledger with a clock of the test, and transactions of the caller on its database.
type place struct {
	*ledger.Ledger
	clock *ledgertest.Clock
	// within runs fn in a transaction. The transaction is committed if fn returns nil.
	within func(t *testing.T, fn func(tx ledger.Conn) error) error
}

// start is a Friday.
var start = time.Date(2026, 11, 20, 22, 30, 0, 0, time.UTC)

// places runs a test on SQLite and on Postgres, there with both sorts of transactions.
func places(t *testing.T, test func(t *testing.T, p place)) {
	t.Run("sqlite", func(t *testing.T) {
		l := ledgertest.File(t)
		l.Clock.Advance(start.Sub(l.Clock.Now()))
		test(t, place{l.Ledger, l.Clock, sqlWithin(l.DB, func(tx *sql.Tx) ledger.Conn { return sqlite.Wrap(tx) })})
	})
	pg := func(t *testing.T) (p place, pool *pgxpool.Pool) {
		pool, p.clock = pgtest.Pool(t), ledgertest.NewClock(start)
		store, err := postgres.Open(t.Context(), pool, postgres.Options{Schema: pgtest.Schema(t), Now: p.clock.Now})
		must.OK(t, err)
		p.Ledger = ledger.New(store, ledger.Options{})
		t.Cleanup(func() { p.Close() })
		return p, pool
	}
	t.Run("pgx", func(t *testing.T) {
		p, pool := pg(t)
		p.within = func(t *testing.T, fn func(tx ledger.Conn) error) error {
			tx, err := pool.Begin(t.Context())
			must.OK(t, err)
			defer tx.Rollback(context.WithoutCancel(t.Context()))
			if err := fn(postgres.Wrap(tx)); err != nil {
				return err
			}
			return tx.Commit(t.Context())
		}
		test(t, p)
	})
	t.Run("database/sql on Postgres", func(t *testing.T) {
		p, _ := pg(t)
		db, err := sql.Open("pgx", pgtest.URL(t))
		must.OK(t, err)
		t.Cleanup(func() { db.Close() })
		p.within = sqlWithin(db, func(tx *sql.Tx) ledger.Conn { return postgres.WrapSQL(tx) })
		test(t, p)
	})
}

func sqlWithin(db *sql.DB, wrap func(*sql.Tx) ledger.Conn) func(*testing.T, func(ledger.Conn) error) error {
	return func(t *testing.T, fn func(tx ledger.Conn) error) error {
		tx, err := db.BeginTx(t.Context(), nil)
		must.OK(t, err)
		defer tx.Rollback()
		if err := fn(wrap(tx)); err != nil {
			return err
		}
		return tx.Commit()
	}
}

// work works all due items with one result, and returns their payloads.
func work(t *testing.T, l *ledger.Ledger, k typed.Kind[Mail], answer error) (worked []Mail) {
	t.Helper()
	ledgertest.RunDue(t, l, map[string]worker.Handler{k.Name: k.Handler(func(_ context.Context, m Mail) error {
		worked = append(worked, m)
		return answer
	})})
	return worked
}
