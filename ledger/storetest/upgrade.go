package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// Older is a ledger of an older schema.
type Older struct {
	Exec   func(statement string)
	Moment func(time.Time) string // returns a time as SQL
	State  string                 // the column of the state in ledger_backlog
	// Open brings the ledger up to date and opens it.
	Open func() *ledger.Ledger
}

// Upgrade migrates a ledger of the oldest schema that has unfinished work. The work then goes on.
func Upgrade(t *testing.T, old Older) {
	now, slot := old.Moment(time.Now()), scheduler.Slot("a")
	old.Exec("INSERT INTO ledger_kinds (kind) VALUES ('k')")
	old.Exec(fmt.Sprintf("INSERT INTO ledger_items (kind, key, slot, created_at) VALUES ('k', 'a', %d, %s)", slot, now))
	old.Exec(fmt.Sprintf("INSERT INTO ledger_backlog (item_id, kind, %s, slot, due_at) VALUES (1, 'k', 1, %d, %s)",
		old.State, slot, now))
	h := &harness{t: t, ctx: t.Context(), l: old.Open()}
	h.add(ledger.NewItem{Kind: "k", Key: "b", Trace: traceText})
	for range 2 {
		h.end(h.claimOne("k"), ledger.Done(nil))
	}
	h.verify()
}
