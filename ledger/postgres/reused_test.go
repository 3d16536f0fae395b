package postgres_test

import (
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
)

// schemas are used by one test after the other. They are emptied, since making a schema takes ten times as long.
type schemas struct {
	t    testing.TB // the schemas exist until it ends
	pool *pgxpool.Pool
	mu   sync.Mutex
	free []string
}

// take returns the name of a schema that is empty, or holds an empty ledger. It can be taken again once t has ended.
func (s *schemas) take(t testing.TB) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var name string
	if n := len(s.free); n > 0 {
		name, s.free = s.free[n-1], s.free[:n-1]
		s.empty(t, name)
	} else {
		name = pgtest.Schema(s.t)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.free = append(s.free, name)
		}
	})
	return name
}

// empty makes a ledger as it was after its migrations. TRUNCATE makes new files for a table and each of its
// indexes, so tables that were not used are passed over.
func (s *schemas) empty(t testing.TB, name string) {
	t.Helper()
	var statement string
	err := s.pool.QueryRow(t.Context(), `SELECT CASE WHEN to_regclass($1 || '.ledger_meta') IS NOT NULL THEN
			'DELETE FROM ' || $1 || '.ledger_meta WHERE k NOT IN (''ledger_id'', ''compatible_from'')' ELSE '' END ||
			coalesce('; TRUNCATE ' || string_agg(oid::regclass::text, ', ') || ' RESTART IDENTITY', '')
		FROM pg_class WHERE relnamespace = to_regnamespace($1) AND relkind = 'r'
		AND relname NOT IN ('ledger_meta', 'ledger_migrations')
		AND (pg_relation_size(oid) > 0 OR EXISTS (SELECT FROM pg_sequences
			WHERE schemaname = $1 AND starts_with(sequencename, relname) AND last_value IS NOT NULL))`,
		name).Scan(&statement)
	if err == nil && statement != "" {
		_, err = s.pool.Exec(t.Context(), statement)
	}
	must.OK(t, err)
}
