package postgres_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
)

// After a failover the pool holds connections to a server that takes no writes any more. Each is
// dropped when that shows, so that the next call finds the new primary.
func TestReadOnlySessionIsDropped(t *testing.T) {
	config, err := pgxpool.ParseConfig(pgtest.URL(t))
	must.OK(t, err)
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	must.OK(t, err)
	defer pool.Close()
	s, err := postgres.Open(t.Context(), pool, postgres.Options{Schema: pgtest.Schema(t)})
	must.OK(t, err)
	defer s.Close()
	l := ledger.New(s, ledger.Options{})
	must.Do(t)(pool.Exec(t.Context(), "SET default_transaction_read_only = on"))
	item := ledger.NewItem{Kind: "k", Key: "x"}
	if _, err := l.Add(t.Context(), item); !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("a session that takes no writes: %v", err)
	}
	if _, err := l.Add(t.Context(), item); err != nil {
		t.Errorf("after it has shown: %v", err)
	}
}

// A ledger that was opened to be read is read, and cannot be written to.
func TestReadOnly(t *testing.T) {
	schema := pgtest.Schema(t)
	o := postgres.Options{Schema: schema}
	writing, err := postgres.Connect(t.Context(), pgtest.URL(t), o)
	must.OK(t, err)
	defer writing.Close()
	item := ledger.NewItem{Kind: "k", Key: "x"}
	must.Do(t)(ledger.New(writing, ledger.Options{}).Add(t.Context(), item))
	o.ReadOnly, o.MustExist = true, true
	reading, err := postgres.Connect(t.Context(), pgtest.URL(t), o)
	must.OK(t, err)
	defer reading.Close()
	l := ledger.New(reading, ledger.Options{})
	if it, err := l.Find(t.Context(), "k", "", "x"); err != nil || it.State != ledger.StateReady {
		t.Errorf("%+v, %v", it, err)
	}
	for range 3 { // also on connections that were dropped for it
		if _, err := l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "y"}); !errors.Is(err, ledger.ErrUnavailable) {
			t.Errorf("a write: %v", err)
		}
	}
}
