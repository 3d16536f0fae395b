package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/storetest"
)

// poolIn is a pool whose sessions look for tables in one schema.
func poolIn(t testing.TB, schema string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.RuntimeParams["search_path"] = schema
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func TestSelects(t *testing.T) {
	pools := map[ledger.Store]*pgxpool.Pool{}
	storetest.Selects(t, func(t testing.TB, now func() time.Time) ledger.Store {
		schema := pgtest.Schema(t)
		pool := poolIn(t, schema)
		s, err := postgres.Open(t.Context(), pool, postgres.Options{Schema: schema, Now: now})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		pools[s] = pool
		return s
	}, func(t testing.TB, s ledger.Store, statement string, args ...any) {
		t.Helper()
		for i := range args {
			statement = strings.Replace(statement, "?", fmt.Sprintf("$%d", i+1), 1)
		}
		if _, err := pools[s].Exec(t.Context(), statement, args...); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	})
}

// TestSelectReads: a query that writes is refused, also one that hides it in a function, and the
// place of a mistake is told.
func TestSelectReads(t *testing.T) {
	schema := pgtest.Schema(t)
	pool := poolIn(t, schema)
	for _, statement := range []string{`CREATE TABLE people (n integer)`,
		`CREATE FUNCTION sneaky() RETURNS integer LANGUAGE sql AS 'INSERT INTO people VALUES (1) RETURNING n'`} {
		if _, err := pool.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	s, err := postgres.Open(t.Context(), pool, postgres.Options{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := ledger.New(s, ledger.Options{})
	_, err = l.AddSelect(t.Context(), ledger.Selection{Kind: "k", Query: `SELECT sneaky() AS n`, Key: "n"})
	bad, ok := errors.AsType[*ledger.QueryError](err)
	if !ok || !strings.Contains(bad.Message, "read-only transaction") {
		t.Errorf("a query that writes: %v", err)
	}
	_, err = l.AddSelect(t.Context(), ledger.Selection{Kind: "k", Query: "SELECT n\nFORM people", Key: "n"})
	if bad, ok := errors.AsType[*ledger.QueryError](err); !ok || bad.Position != 15 {
		t.Errorf("a mistake: %v, at %d", err, bad.Position)
	}
	var n int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM people`).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d rows, %v", n, err)
	}
}
