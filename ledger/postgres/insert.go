package postgres

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// insertChunk bounds the items of one statement; with large payloads it is bytes that do.
const insertChunk = 5000

// mostlyKnown remembers whether the last chunk of an Insert was known for the most part: then
// the next one is looked up before it is inserted, which is cheaper than so many conflicts.
type mostlyKnown struct{ atomic.Bool }

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

func (t *tx) insertChunk(items []ledger.Record, ids []int64) error {
	fresh := make([]int, 0, len(items)) // indices into items
	if t.s.known.Load() {
		keys := make([]ledger.Identity, len(items))
		for i := range items {
			keys[i] = items[i].Identity
		}
		if err := t.identify(keys); err != nil {
			return err
		}
		for i := range items {
			if _, known := t.ids[items[i].Identity]; !known {
				fresh = append(fresh, i)
			}
		}
	} else {
		for i := range items {
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
	t.s.known.Store(added < len(items)/2)
	return nil
}

// insertFresh inserts the items with the given indices, in their order, which is that of the
// identities: whoever waits for another's insert waits in one direction.
func (t *tx) insertFresh(items []ledger.Record, fresh []int, ids []int64) (added int, err error) {
	if err := t.withNow(); err != nil {
		return 0, err
	}
	args := append(columnsOfItems(items, fresh), t.stamp())
	err = t.query(`INSERT INTO {{S}}.ledger_items (kind, scope, key, fingerprint, slot, shard_key, every, zone, payload, source, created_at)
 SELECT kind, coalesce(scope, ''), key, coalesce(fingerprint, ''), slot, nullif(shard_key, ''), nullif(every, ''), nullif(zone, ''), nullif(payload, ''), nullif(source, ''), coalesce($11::timestamptz, now())
 FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::smallint[], $6::text[], $7::text[], $8::text[], $9::bytea[], $10::text[])
  WITH ORDINALITY u(kind, scope, key, fingerprint, slot, shard_key, every, zone, payload, source, o) ORDER BY o
 ON CONFLICT (kind, scope, key) DO NOTHING RETURNING id, kind, scope, key`, args, func(scan scanner) error {
		var id int64
		var key ledger.Identity
		if err := scan(&id, &key.Kind, &key.Scope, &key.Key); err != nil {
			return err
		}
		k, ok := slices.BinarySearchFunc(fresh, key, func(i int, key ledger.Identity) int { return compareIdentity(items[i].Identity, key) })
		if !ok {
			return fmt.Errorf("postgres: an item was inserted under another key: %v", key)
		}
		ids[fresh[k]] = id
		added++
		return nil
	})
	if err != nil || added == 0 {
		return 0, err
	}
	return added, t.queue(items, ids, added)
}

func compareIdentity(a, b ledger.Identity) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Key, b.Key))
}

// columnsOfItems are the first ten arguments of the insert. A column that is empty throughout is
// NULL, which unnest fills up.
func columnsOfItems(items []ledger.Record, which []int) []any {
	column := func(of func(*ledger.Record) string) any {
		values, some := make([]string, len(which)), false
		for k, i := range which {
			values[k] = of(&items[i])
			some = some || values[k] != ""
		}
		if !some {
			return []string(nil)
		}
		return values
	}
	slots, payloads := make([]int16, len(which)), make([][]byte, len(which))
	for k, i := range which {
		slots[k], payloads[k] = int16(items[i].Slot), items[i].Payload
	}
	return []any{
		column(func(r *ledger.Record) string { return r.Kind }),
		column(func(r *ledger.Record) string { return r.Scope }),
		column(func(r *ledger.Record) string { return r.Key }),
		column(func(r *ledger.Record) string { return r.Fingerprint }),
		slots,
		column(func(r *ledger.Record) string { return r.ShardKey }),
		column(func(r *ledger.Record) string { return r.Every }),
		column(func(r *ledger.Record) string { return r.Zone }),
		payloads,
		column(func(r *ledger.Record) string { return r.Source }),
	}
}

// queue puts the items that have got an id into the backlog.
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
		id, kind, state = append(id, ids[i]), append(kind, r.Kind), append(state, stateCode(w.State))
		priority, slot, due = append(priority, w.Priority), append(slot, int16(r.Slot)), append(due, timeOrNull(w.Due))
		t.queued(r.Kind, w)
	}
	return t.later(`INSERT INTO {{S}}.ledger_backlog (item_id, kind, state, priority, slot, due_at)
 SELECT id, kind, state, priority, slot, coalesce(due, $7::timestamptz, now())
 FROM unnest($1::bigint[], $2::text[], $3::smallint[], $4::smallint[], $5::smallint[], $6::timestamptz[]) u(id, kind, state, priority, slot, due)`,
		[]any{id, kind, state, priority, slot, due, t.stamp()}, nil)
}

// queued notes for this process's probes where a row will be found.
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
