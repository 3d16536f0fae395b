package postgres

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
)

// SessionSettings are what Connect has set: application_name, jit, the timeout of idle
// transactions, and the size of both pools.
func SessionSettings(t *testing.T, s *Store) string {
	t.Helper()
	var name, jit, idle string
	err := s.pool.QueryRow(t.Context(),
		`SELECT current_setting('application_name'), current_setting('jit'), current_setting('idle_in_transaction_session_timeout')`).Scan(&name, &jit, &idle)
	must.OK(t, err)
	return fmt.Sprint(name, " ", jit, " ", idle, " ", s.pool.Config().MaxConns+s.hot.Config().MaxConns)
}

// Walks is how many walks have begun and not ended.
func Walks(s *Store) (n int) {
	p := &s.positions
	p.mu.Lock()
	defer p.mu.Unlock()
	n = len(p.leased.walks)
	for _, f := range p.waiting {
		n += len(f.walks)
	}
	for _, levels := range p.ready {
		for _, f := range levels {
			n += len(f.walks)
		}
	}
	return n
}

// MigrationLock is the key of the lock of those who migrate a schema.
func MigrationLock(schema string) int64 { return lockKey("migrate", schema) }
