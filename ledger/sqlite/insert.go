package sqlite

import (
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/code"
)

// Insert implements ledger.Tx. It returns the id of each item, 0 for one that was there already. The ids of a statement
// without conflicts are consecutive, so they are computed; after a conflict they are read.
func (x *tx) Insert(items []ledger.Record) ([]int64, error) {
	if err := x.begin(); err != nil {
		return nil, err
	}
	ids := make([]int64, len(items))
	top, err := x.topItem()
	if err != nil {
		return nil, err
	}
	err = insertItems.chunks(len(items), func(list []any, i int) []any {
		return itemArgs(list, &items[i], x.now)
	}, func(from, to int, text string, list []any) error {
		r, err := x.session.exec(text, list...)
		if err != nil || r.changes == 0 {
			return err
		}
		if r.changes == int64(to-from) {
			for i := from; i < to; i++ {
				ids[i] = r.lastID - int64(to-1-i)
			}
		} else if err := x.findInserted(items, ids, from, to, top); err != nil {
			return err
		}
		top = r.lastID
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ids, x.enqueue(items, ids)
}

// topItem returns the highest id so far: new items get higher ones.
func (x *tx) topItem() (id int64, err error) {
	err = x.session.query(`SELECT coalesce(max(id), 0) FROM ledger_items`, func(r row) error {
		id = r.int(0)
		return nil
	})
	return id, err
}

// findInserted reads the ids of those items in items[from:to] that were inserted, all above top.
func (x *tx) findInserted(items []ledger.Record, ids []int64, from, to int, top int64) error {
	at := make(map[ledger.Identity]int, to-from)
	for i := from; i < to; i++ {
		at[items[i].Identity] = i
	}
	return x.session.query(`SELECT id, kind, scope, key FROM ledger_items WHERE id > ?1`, func(r row) error {
		ids[at[ledger.Identity{Kind: r.text(1), Scope: r.text(2), Key: r.text(3)}]] = r.int(0)
		return nil
	}, top)
}

// enqueue inserts the backlog rows of new items. One statement serves a run of items that have the same state,
// priority, due time and epoch. Items that were not inserted (id 0) are passed over.
func (x *tx) enqueue(items []ledger.Record, ids []int64) error {
	due := func(w *ledger.Work) time.Time {
		if w.Due.IsZero() {
			return x.now
		}
		return w.Due
	}
	for i := 0; i < len(items); {
		if ids[i] == 0 {
			i++
			continue
		}
		w, last := items[i].Work, i
		j := i + 1
		for ; j < len(items); j++ {
			if ids[j] == 0 {
				continue
			}
			if n := items[j].Work; n.State != w.State || n.Priority != w.Priority || !due(n).Equal(due(w)) ||
				n.Epoch != w.Epoch {
				break
			}
			last = j
		}
		_, err := x.session.exec(`INSERT INTO ledger_backlog (item_id, kind, slot, state, priority, due_at, epoch)
 SELECT id, kind, slot, ?3, ?4, ?5, ?6 FROM ledger_items WHERE id BETWEEN ?1 AND ?2`,
			ids[i], ids[last], code.OfState(w.State), w.Priority, due(w), w.Epoch)
		if err != nil {
			return err
		}
		i = j
	}
	return nil
}
