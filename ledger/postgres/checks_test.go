package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/storetest"
)

func TestChecks(t *testing.T) {
	pool, schema := pgtest.Pool(t), pgtest.Schema(t)
	must.Do(t)(postgres.Open(t.Context(), pool, postgres.Options{Schema: schema}))
	conn, err := pool.Acquire(t.Context())
	must.OK(t, err)
	defer conn.Release()
	must.Do(t)(conn.Exec(t.Context(), "SET search_path = "+pgx.Identifier{schema}.Sanitize()))
	storetest.Checks(t, storetest.SQL{Time: "timestamptz '2026-11-20 10:00Z'", Earlier: "timestamptz '2026-11-20 09:00Z'",
		UUID: "gen_random_uuid()", True: "true", LeaseRows: true,
		Text:  func(n int) string { return fmt.Sprintf("repeat('x', %d)", n) },
		Bytes: func(n int) string { return fmt.Sprintf("convert_to(repeat('x', %d), 'UTF8')", n) },
		Exec: func(statement string) error {
			_, err := conn.Exec(t.Context(), statement)
			return err
		}})
	must.Do(t)(conn.Exec(t.Context(), "RESET search_path"))
}
