package postgres

import (
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/code"
	"github.com/ledgerd/ledgerd/ledger/internal/where"
)

// Readers of many items go from what is between $1 and $2 of the ids, and look up the rest row by row. Each place to
// begin with is a SELECT of its own, and OFFSET keeps them apart: the planner, with any belief about the tables,
// neither joins them as wholes nor begins elsewhere.
const (
	fromItems   = `(SELECT i.* FROM {{S}}.ledger_items i WHERE i.id > $1 AND i.id <= $2 ORDER BY i.id{{DESC}} OFFSET 0) i`
	fromBacklog = `(SELECT b.* FROM ` + work + ` b WHERE b.item_id > $1 AND b.item_id <= $2 ORDER BY b.item_id{{DESC}} OFFSET 0) b`
	fromStuck   = `(SELECT ` + workOf + `, b.kind FROM {{S}}.ledger_backlog b LEFT JOIN {{S}}.ledger_leases l ON l.lock_id = b.lock_id WHERE b.stage >= ` + code.Dead +
		` AND b.item_id > $1 AND b.item_id <= $2 ORDER BY b.stage, b.kind, b.item_id OFFSET 0) b`
	fromLeased = `(SELECT b.* FROM ` + leased + ` b WHERE b.item_id > $1 AND b.item_id <= $2 OFFSET 0) b`

	itsItem    = ` CROSS JOIN LATERAL (SELECT i.* FROM {{S}}.ledger_items i WHERE i.id = b.item_id OFFSET 0) i`
	itsBacklog = ` LEFT JOIN LATERAL (SELECT b.* FROM ` + work + ` b WHERE b.item_id = i.id OFFSET 0) b ON true`
)

// start is where a reader of what a filter matches begins: with what is stuck or leased (that is little), with what is
// open, with what an index leads to by id or key, or with the items.
func start(f ledger.Filter) (from string, backlog bool) {
	switch {
	case f.NamesItems(), where.Some(f, func(p ledger.Filter) bool { return p.Prefix != "" }):
		return "", false
	case f.Only(ledger.StateDead, ledger.StateDoubt):
		return fromStuck, true
	case where.Held(f):
		return fromLeased, true
	case where.Unfinished(f):
		return fromBacklog, true
	}
	return fromItems, false
}

// within are the tables of a reader, and the column that orders them by id.
func within(f ledger.Filter, desc bool) (from, id string) {
	from, backlog := start(f)
	direction := ""
	if desc {
		direction = " DESC"
	}
	from = strings.ReplaceAll(from, "{{DESC}}", direction)
	switch {
	case from == "":
		return `{{S}}.ledger_items i` + itsBacklog + ` ` + lastAttempt + bounded, "i.id"
	case backlog:
		return from + itsItem + ` ` + lastAttempt, "b.item_id"
	}
	return from + itsBacklog + ` ` + lastAttempt, "i.id"
}

// bounded names $1 and $2. The filter has them as well.
const bounded = ` CROSS JOIN (SELECT $1::bigint AS above, $2::bigint AS up_to) bounds`

// counted are the tables that a condition speaks of: who counts reads whole tables quickly, and looks up
// as little as possible.
func counted(f ledger.Filter, condition string) string {
	from, backlog := start(f)
	switch {
	case backlog && from != fromBacklog:
		from, _ = within(f, false)
		return from
	case where.NamesAttempt(condition):
		return recordTables + bounded
	case where.NamesBacklog(condition):
		return `{{S}}.ledger_items i LEFT JOIN ` + work + ` b ON b.item_id = i.id` + bounded
	}
	return `{{S}}.ledger_items i` + bounded
}
