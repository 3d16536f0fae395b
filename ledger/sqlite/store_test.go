package sqlite_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/ledger/storetest"
)

func TestStore(t *testing.T) { storetest.Run(t, openWith) }

func openWith(t testing.TB, now func() time.Time) ledger.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "ledger.db"), sqlite.Options{Now: now})
	must.OK(t, err)
	t.Cleanup(func() { must.OK(t, s.Close()) })
	return s
}

func TestChecks(t *testing.T) {
	_, path := newLedger(t)
	db := database(t, path)
	storetest.Checks(t, storetest.SQL{Time: "1763632800000000", Earlier: "1763632799999999", UUID: "randomblob(16)",
		True:  "1",
		Text:  func(n int) string { return fmt.Sprintf("replace(hex(zeroblob(%d)), '00', 'x')", n) },
		Bytes: func(n int) string { return fmt.Sprintf("zeroblob(%d)", n) },
		Exec: func(statement string) error {
			_, err := db.ExecContext(t.Context(), statement)
			return err
		}})
}
