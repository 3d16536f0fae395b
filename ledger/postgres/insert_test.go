package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
)

// files are n items like those of a big inbox, from a number on.
func files(from, n int) []ledger.NewItem {
	items := make([]ledger.NewItem, n)
	for i := range items {
		items[i] = ledger.NewItem{Kind: "noop", Key: fmt.Sprintf("/data/in/2026/11/20/users-%08d.csv", from+i),
			Payload: []byte(`{"path":"/data/in/2026/11/20/users.csv"}`)}
	}
	return items
}

// addFiles adds files [from, from+n) and returns how many are new. It checks that known files keep their id.
func (r *rig) addFiles(t *testing.T, from, n int, ids map[int]int64) (added int) {
	t.Helper()
	answers, err := r.Add(t.Context(), files(from, n)...)
	must.OK(t, err)
	for i, a := range answers {
		if a.Verdict == ledger.VerdictAdded {
			added++
		} else if have := ids[from+i]; have != 0 && have != a.ID {
			t.Fatalf("file %d has become item %d, it was %d", from+i, a.ID, have)
		}
		ids[from+i] = a.ID
	}
	return added
}

// After chunks that were all new the store looks for no conflicts; where there are some all the
// same the answers are no different.
func TestConflictsAfterNewItems(t *testing.T) {
	r, ids := newRig(t), map[int]int64{}
	for _, step := range []struct{ from, n, want int }{
		{0, 3000, 3000}, {3000, 3000, 3000}, // all new
		{5999, 2000, 1999}, // one is known, and it is the first to be inserted
		{7998, 200, 199}, {8198, 200, 200}, {8397, 2, 1},
		{8399, 1000, 1000}, {0, 8000, 0}, // all is known
		{7000, 4000, 1601}, {20_000, 200, 200},
	} {
		if got := r.addFiles(t, step.from, step.n, ids); got != step.want {
			t.Fatalf("adding %d from %d: %d were new, want %d", step.n, step.from, got, step.want)
		}
	}
	for id, key := range r.keys(t) {
		var i int
		if _, err := fmt.Sscanf(key, "/data/in/2026/11/20/users-%d.csv", &i); err != nil || ids[i] != id {
			t.Fatalf("item %d is %s; the answer for that was %d", id, key, ids[i])
		}
	}
}

// keys returns the keys of all items by id, and checks that each has a row in the backlog.
func (r *rig) keys(t *testing.T) map[int64]string {
	t.Helper()
	rows, err := r.pool.Query(t.Context(), `SELECT i.id, i.key FROM `+r.schema+`.ledger_items i JOIN `+r.schema+
		`.ledger_backlog b ON b.item_id = i.id AND b.kind = i.kind AND b.slot = i.slot`)
	must.OK(t, err)
	keys := map[int64]string{}
	var id int64
	var key string
	_, err = pgx.ForEachRow(rows, []any{&id, &key}, func() error { keys[id] = key; return nil })
	must.OK(t, err)
	return keys
}
