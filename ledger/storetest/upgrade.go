package storetest

import (
	"database/sql"
	"fmt"
	"io/fs"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/schema"
)

// Older is a ledger of an older schema.
type Older struct {
	Exec   func(statement string)
	Moment func(time.Time) string // a time in SQL
	State  string                 // the column of the state in ledger_backlog
	// Open brings the ledger up to date and opens it.
	Open func() *ledger.Ledger
}

// Migrate makes a ledger by the migrations of a folder of files, up to the newest.
func Migrate(t testing.TB, db *sql.DB, dialect goose.Dialect, files fs.FS, folder, newest string) {
	t.Helper()
	old := fstest.MapFS{}
	all, err := fs.ReadDir(files, folder)
	must.OK(t, err)
	for _, f := range all {
		if f.Name() <= newest {
			text, err := fs.ReadFile(files, folder+"/"+f.Name())
			must.OK(t, err)
			old[f.Name()] = &fstest.MapFile{Data: text}
		}
	}
	p, err := goose.NewProvider(dialect, db, old, goose.WithTableName(schema.Table), goose.WithDisableGlobalRegistry(true))
	must.OK(t, err)
	must.Do(t)(p.Up(t.Context()))
}

// Upgrade migrates a ledger of the oldest schema, with work in it. The ledger then goes on as it is.
func Upgrade(t *testing.T, old Older) {
	now, slot := old.Moment(time.Now()), scheduler.Slot("a")
	old.Exec("INSERT INTO ledger_kinds (kind) VALUES ('k')")
	old.Exec(fmt.Sprintf("INSERT INTO ledger_items (kind, key, slot, created_at) VALUES ('k', 'a', %d, %s)", slot, now))
	old.Exec(fmt.Sprintf("INSERT INTO ledger_backlog (item_id, kind, %s, slot, due_at) VALUES (1, 'k', 1, %d, %s)",
		old.State, slot, now))
	h := &harness{t: t, ctx: t.Context(), l: old.Open()}
	h.add(ledger.NewItem{Kind: "k", Key: "b", Trace: traceText})
	for range 2 {
		h.end(h.take("k"), ledger.Done(nil))
	}
	h.verify()
}
