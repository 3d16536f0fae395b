package postgres

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/code"
)

// insertChunk is the most items that are sent before an answer is read; large payloads have a bound in bytes instead.
// insertPiece is the most items of one statement.
const (
	insertChunk = 5000
	insertPiece = 1000
)

// newness is how much of the newest chunk of an Insert was new: the next chunk is likely to be like it. If most items
// are known, they are looked up before the insert, since that is cheaper than so many conflicts. If all are new, they
// are copied, or inserted without ON CONFLICT: with it they cost the server two thirds more. If a conflict arises after
// all, it undoes the transaction, and the transaction is repeated with ON CONFLICT.
type newness struct{ atomic.Int32 }

const (
	someNew int32 = iota
	mostlyKnown
	allNew
)

// note remembers how many of the items of a chunk were new.
func (n *newness) note(added, items int) {
	switch {
	case added == items:
		n.Store(allNew)
	case added < items/2:
		n.Store(mostlyKnown)
	default:
		n.Store(someNew)
	}
}

// minTrust is the smallest chunk that is inserted without ON CONFLICT: for fewer items it does not pay.
const minTrust = 100

// Insert implements ledger.Tx.
func (t *tx) Insert(items []ledger.Record) ([]int64, error) {
	ids := make([]int64, len(items))
	for from := 0; from < len(items); {
		to, size := from, 0
		for to < len(items) && to-from < insertChunk && size < maxWaiting {
			size += len(items[to].Payload)
			to++
		}
		if err := t.insertChunk(items[from:to], ids[from:to]); err != nil {
			return nil, err
		}
		from = to
	}
	return ids, nil
}

// insertChunk copies or inserts items, and sets the ids of those that were new.
func (t *tx) insertChunk(items []ledger.Record, ids []int64) error {
	if o, ours := t.session.(*own); ours && t.trust && len(items) >= minCopy && t.s.newness.Load() == allNew {
		if copied, err := t.copyChunk(o, items, ids); copied || err != nil {
			return err
		}
	}
	look := t.s.newness.Load() == mostlyKnown
	if look {
		keys := make([]ledger.Identity, len(items))
		for i := range items {
			keys[i] = items[i].Identity
		}
		if err := t.identify(keys); err != nil {
			return err
		}
	}
	fresh := make([]int, 0, len(items)) // indices of the items that are not known
	for i := range items {
		if _, known := t.ids[items[i].Identity]; !look || !known {
			fresh = append(fresh, i)
		}
	}
	added := 0
	if len(fresh) > 0 {
		var err error
		if added, err = t.insertFresh(items, fresh, ids); err != nil {
			return err
		}
	}
	t.s.newness.note(added, len(items))
	return nil
}

// insertFresh inserts the items with the given indices in their order, the order of the identities: processes that wait
// for each other's inserts wait in one direction.
func (t *tx) insertFresh(items []ledger.Record, fresh []int, ids []int64) (added int, err error) {
	if err := t.withNow(); err != nil {
		return 0, err
	}
	trust := t.trust && len(fresh) >= minTrust && t.s.newness.Load() == allNew
	w := items[fresh[0]].Work
	alike := !slices.ContainsFunc(fresh, func(i int) bool { return !sameWork(items[i].Work, w) })
	template := insertTemplate(trust, alike)
	var id int64
	var key ledger.Identity
	for piece := range slices.Chunk(fresh, insertPiece) {
		args := append(columnsOfItems(items, piece), t.stamp())
		if alike {
			args = append(args, code.OfState(w.State), w.Priority, timeOrNull(w.Due))
		}
		err = t.later(template, args, func(scan scanner) error {
			if err := scan(&id, &key.Kind, &key.Scope, &key.Key); err != nil {
				return err
			}
			for len(piece) > 0 && items[piece[0]].Identity != key { // it was known
				piece = piece[1:]
			}
			if len(piece) == 0 {
				return fmt.Errorf("postgres: an item was inserted under another key: %v", key)
			}
			ids[piece[0]] = id
			added++
			return nil
		})
		if err != nil {
			break
		}
	}
	if err == nil {
		err = t.flush()
	}
	switch {
	case trust && uniqueViolation(err):
		t.s.newness.Store(someNew)
		return 0, keyNotNew{err}
	case err != nil || added == 0:
		return 0, err
	case alike:
		t.queuedAll(items, ids)
		return added, nil
	}
	return added, t.queue(items, ids, added)
}

// insertTemplate inserts items, and with alike their rows of the backlog.
func insertTemplate(trust, alike bool) string {
	template := insertItems
	if !trust {
		template += ` ON CONFLICT (kind, scope, key) DO NOTHING`
	}
	template += ` RETURNING id, kind, scope, key`
	if alike {
		template = `WITH i AS (` + template + `, slot), b AS (` + enqueueSame +
			`) SELECT id, kind, scope, key FROM i`
	}
	return template
}

// sameWork reports whether the backlog rows of two new items differ in nothing but the item.
func sameWork(a, b *ledger.Work) bool {
	return a.State == b.State && a.Priority == b.Priority && a.Due.Equal(b.Due)
}

// queue inserts the backlog rows of the n items that have got an id.
func (t *tx) queue(items []ledger.Record, ids []int64, n int) error {
	var (
		id       = make([]int64, 0, n)
		kind     = make([]string, 0, n)
		state    = make([]int16, 0, n)
		priority = make([]int16, 0, n)
		slot     = make([]int16, 0, n)
		due      = make([]*time.Time, 0, n)
	)
	for i := range items {
		if ids[i] == 0 {
			continue
		}
		r, w := &items[i], items[i].Work
		id, kind, state = append(id, ids[i]), append(kind, r.Kind), append(state, code.OfState(w.State))
		priority, slot, due = append(priority, w.Priority), append(slot, int16(r.Slot)), append(due, timeOrNull(w.Due))
	}
	t.queuedAll(items, ids)
	return t.later(`INSERT INTO {{S}}.ledger_backlog (item_id, kind, stage, priority, slot, due_at)
 SELECT id, kind, state, priority, slot, coalesce(due, $7::timestamptz, now())
 FROM unnest($1::bigint[], $2::text[], $3::smallint[], $4::smallint[], $5::smallint[], $6::timestamptz[]) u(id, kind, state, priority, slot, due)`,
		[]any{id, kind, state, priority, slot, due, t.stamp()}, nil)
}

// queuedAll calls queued for the items that have got an id, once for neighbours that are alike.
func (t *tx) queuedAll(items []ledger.Record, ids []int64) {
	var last *ledger.Record
	for i := range items {
		r := &items[i]
		if ids[i] != 0 && (last == nil || last.Kind != r.Kind || !sameWork(last.Work, r.Work)) {
			t.queued(r.Kind, r.Work)
			last = r
		}
	}
}

// queued notes where probes of this process will find a row of the backlog (see positions.go).
func (t *tx) queued(kind string, w *ledger.Work) {
	due := w.Due
	if due.IsZero() {
		due = t.Now()
	}
	switch w.State {
	case ledger.StateReady:
		t.ready.add(kind, w.Priority, due)
	case ledger.StateWaiting:
		if have, ok := t.waiting[kind]; !ok || due.Before(have) {
			t.waiting[kind] = due
		}
	}
}
