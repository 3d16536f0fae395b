package postgres

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/code"
)

// This file lists the columns of an item, once for reading and once for writing.

// itemColumns are the columns of an item i except its id and kind, in the order of itemDest.
const itemColumns = `i.scope, i.key, i.fingerprint, i.payload, coalesce(i.shard_key, ''), i.slot, coalesce(i.every, ''), coalesce(i.zone, ''), coalesce(i.source, ''),
 i.epoch, i.base_attempt, i.created_at, coalesce(i.trace, '')`

func itemDest(r *ledger.Record) []any {
	return []any{&r.Scope, &r.Key, &r.Fingerprint, &r.Payload, &r.ShardKey, &r.Slot, &r.Every, &r.Zone, &r.Source,
		&r.Epoch, &r.BaseAttempt, &r.CreatedAt, &r.Trace}
}

// The columns of the backlog that a claim returns, of the rows c that it has leased.
const (
	leasedReturning = `item_id, priority, due_at, epoch, attempt, failures, crashes, losses, alone`
	leasedColumns   = `c.priority, c.due_at, c.epoch, c.attempt, c.failures, c.crashes, c.losses, c.alone`
)

func leasedDest(w *ledger.Work) []any {
	return []any{&w.Priority, &w.Due, &w.Epoch, &w.Attempt, &w.Failures, &w.Crashes, &w.Losses, &w.Alone}
}

// newColumn is a column of new items.
type newColumn struct {
	name, array string                                         // array is the type of its argument
	value       string                                         // expression of the value that INSERT stores
	argument    func(items []ledger.Record, indices []int) any // of INSERT, for the items with these indices
	field       func(b []byte, r *ledger.Record) (more []byte) // appends the field of a row of COPY
}

// newColumns are the columns of new items, in the order of the arguments of insertItems.
var newColumns = []newColumn{
	textColumn("kind", func(r *ledger.Record) string { return r.Kind }),
	textColumn("scope", func(r *ledger.Record) string { return r.Scope }),
	textColumn("key", func(r *ledger.Record) string { return r.Key }),
	textColumn("fingerprint", func(r *ledger.Record) string { return r.Fingerprint }),
	column("slot", "smallint[]", "slot", func(r *ledger.Record) int16 { return int16(r.Slot) }, appendInt16),
	optionalColumn("shard_key", func(r *ledger.Record) string { return r.ShardKey }),
	optionalColumn("every", func(r *ledger.Record) string { return r.Every }),
	optionalColumn("zone", func(r *ledger.Record) string { return r.Zone }),
	column("payload", "bytea[]", "nullif(payload, '')", func(r *ledger.Record) []byte { return r.Payload },
		appendOrNull),
	optionalColumn("source", func(r *ledger.Record) string { return r.Source }),
	optionalColumn("trace", func(r *ledger.Record) string { return r.Trace }),
	column("checksum", "integer[]", "checksum", checksum, appendInt32),
}

// checksum is the checksum of a new item as Postgres keeps it, in a type that has a sign.
func checksum(r *ledger.Record) int32 { return int32(r.Identity.Checksum(r.Payload)) }

// column makes a column. get reads its value from an item, and appendField appends the value as a field of COPY.
func column[T any](name, array, value string, get func(*ledger.Record) T,
	appendField func([]byte, T) []byte) newColumn {
	return newColumn{name, array, value, func(items []ledger.Record, indices []int) any {
		return itemColumn[T]{items, indices, get}
	}, func(b []byte, r *ledger.Record) []byte { return appendField(b, get(r)) }}
}

// textColumn is a column of texts that are never NULL.
func textColumn(name string, get func(*ledger.Record) string) newColumn {
	c := column(name, "text[]", "coalesce("+name+", '')", get, appendBytes)
	c.argument = textsOf(get)
	return c
}

// optionalColumn is a column of texts that are NULL where they are empty.
func optionalColumn(name string, get func(*ledger.Record) string) newColumn {
	c := column(name, "text[]", "nullif("+name+", '')", get, appendOrNull)
	c.argument = textsOf(get)
	return c
}

// textsOf makes the argument function of a column of texts. If all texts are empty, the argument is NULL instead of an
// array: that is shorter, and unnest makes a NULL of it for each item.
func textsOf(get func(*ledger.Record) string) func(items []ledger.Record, indices []int) any {
	return func(items []ledger.Record, indices []int) any {
		if !slices.ContainsFunc(indices, func(i int) bool { return get(&items[i]) != "" }) {
			return []string(nil)
		}
		return itemColumn[string]{items, indices, get}
	}
}

// newNames are the names of newColumns.
var newNames = func() string {
	names := make([]string, len(newColumns))
	for i, c := range newColumns {
		names[i] = c.name
	}
	return strings.Join(names, ", ")
}()

// The arguments of insertItems after those of newColumns: 1 the time of the transaction, and for enqueueSame 2 stage,
// 3 priority, 4 due time.
var (
	insertItems = func() string {
		var values, arrays []string
		for i, c := range newColumns {
			values = append(values, c.value)
			arrays = append(arrays, fmt.Sprintf("$%d::%s", i+1, c.array))
		}
		return `INSERT INTO {{S}}.ledger_items (` + newNames + `, created_at)
 SELECT ` + strings.Join(values, ", ") + `, coalesce(` + extraArg(1) + `::timestamptz, now())
 FROM unnest(` + strings.Join(arrays, ", ") + `) WITH ORDINALITY u(` + newNames + `, o) ORDER BY o`
	}()

	// enqueueSame inserts the backlog rows of the new items i. They differ only in item, kind and slot.
	enqueueSame = `INSERT INTO {{S}}.ledger_backlog (item_id, kind, slot, stage, priority, due_at)
 SELECT id, kind, slot, ` + extraArg(2) + `::smallint, ` + extraArg(3) + `::smallint,
 coalesce(` + extraArg(4) + `::timestamptz, ` + extraArg(1) + `::timestamptz, now()) FROM i`
)

// extraArg is the nth argument after those of newColumns.
func extraArg(n int) string { return fmt.Sprint("$", len(newColumns)+n) }

// columnsOfItems are the first arguments of insertItems.
func columnsOfItems(items []ledger.Record, indices []int) []any {
	args := make([]any, len(newColumns), len(newColumns)+4)
	for i, c := range newColumns {
		args[i] = c.argument(items, indices)
	}
	return args
}

// itemColumn is a column of some items as an array. It is encoded just before it is sent, while the server works on
// what was sent before.
type itemColumn[T any] struct {
	items   []ledger.Record
	indices []int
	get     func(*ledger.Record) T
}

// Dimensions implements pgtype.ArrayGetter.
func (c itemColumn[T]) Dimensions() []pgtype.ArrayDimension {
	return []pgtype.ArrayDimension{{Length: int32(len(c.indices)), LowerBound: 1}}
}

// Index implements pgtype.ArrayGetter.
func (c itemColumn[T]) Index(i int) any { return c.get(&c.items[c.indices[i]]) }

// IndexType implements pgtype.ArrayGetter.
func (c itemColumn[T]) IndexType() any { return new(T) }

// The columns of new items, and of their rows of the backlog, as they are copied.
var (
	copyItems   = `COPY {{S}}.ledger_items (id, ` + newNames + `, created_at) FROM STDIN BINARY`
	copyBacklog = `COPY {{S}}.ledger_backlog (item_id, kind, slot, stage, priority, due_at) FROM STDIN BINARY`
)

// appendItem appends a row of copyItems.
func appendItem(b []byte, id int64, r *ledger.Record, now time.Time) []byte {
	b = appendInt64(appendCount(b, len(newColumns)+2), id)
	for i := range newColumns {
		b = newColumns[i].field(b, r)
	}
	return appendTime(b, now)
}

// appendBacklogRow appends a row of copyBacklog.
func appendBacklogRow(b []byte, id int64, r *ledger.Record, now time.Time) []byte {
	due := r.Work.Due
	if due.IsZero() {
		due = now
	}
	b = appendInt64(appendCount(b, 6), id)
	b = appendBytes(b, r.Kind)
	b = appendInt16(b, int16(r.Slot))
	b = appendInt16(b, code.OfState(r.Work.State))
	b = appendInt16(b, r.Work.Priority)
	return appendTime(b, due)
}
