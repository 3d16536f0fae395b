package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/ledger/storetest"
)

func TestSelects(t *testing.T) {
	tables := map[ledger.Store]*sql.DB{}
	storetest.Selects(t, func(t testing.TB, now func() time.Time) ledger.Store {
		path := filepath.Join(t.TempDir(), "ledger.db")
		s, err := sqlite.Open(t.Context(), path, sqlite.Options{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		tables[s] = database(t, path)
		return s
	}, func(t testing.TB, s ledger.Store, statement string, args ...any) {
		t.Helper()
		if _, err := tables[s].ExecContext(t.Context(), statement, args...); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	})
}
