package postgres

import (
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/code"
	"github.com/ledgerd/ledgerd/ledger/internal/where"
)

// Queries of many items begin with the rows of one table whose id is between $1 and $2, and look up the rows of other
// tables one by one. OFFSET keeps the planner from joining whole tables, or from beginning with another table, whatever
// its statistics are. fromStuck, in the order of the index ledger_backlog_stuck, and fromLeased are few rows; the outer
// ORDER BY sorts them, so they have no {{DESC}}.
const (
	fromItems   = `(SELECT i.* FROM {{S}}.ledger_items i WHERE i.id > $1 AND i.id <= $2 ORDER BY i.id{{DESC}} OFFSET 0) i`
	fromBacklog = `(SELECT b.* FROM ` + work + ` b WHERE b.item_id > $1 AND b.item_id <= $2 ORDER BY b.item_id{{DESC}} OFFSET 0) b`
	fromStuck   = `(SELECT ` + workOf + `, b.kind FROM {{S}}.ledger_backlog b LEFT JOIN {{S}}.ledger_leases l ON l.lock_id = b.lock_id WHERE b.stage >= ` + code.Dead +
		` AND b.item_id > $1 AND b.item_id <= $2 ORDER BY b.stage, b.kind, b.item_id OFFSET 0) b`
	fromLeased = `(SELECT b.* FROM ` + leased + ` b WHERE b.item_id > $1 AND b.item_id <= $2 OFFSET 0) b`

	itsItem    = ` CROSS JOIN LATERAL (SELECT i.* FROM {{S}}.ledger_items i WHERE i.id = b.item_id OFFSET 0) i`
	itsBacklog = ` LEFT JOIN LATERAL (SELECT b.* FROM ` + work + ` b WHERE b.item_id = i.id OFFSET 0) b ON true`
)

// start chooses the beginning of a query for a filter: stuck or leased rows, since these are few; unfinished rows; rows
// that an index finds by id or key (from is ""); or all items. backlog reports whether it is a part of the backlog.
func start(f ledger.Filter) (from string, backlog bool) {
	switch {
	case f.NamesItems(), slices.ContainsFunc(f.Parts(), func(p ledger.Filter) bool { return p.Prefix != "" }):
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

// within returns the FROM clause for a filter, and the column of the id.
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

// bounded uses $1 and $2 where nothing else does: Postgres refuses a parameter that no part of a statement uses. It
// bounds nothing; the condition of the filter has its own parameters for that.
const bounded = ` CROSS JOIN (SELECT $1::bigint AS above, $2::bigint AS up_to) bounds`

// counted returns the FROM clause of a count. Stuck and leased rows are few and are looked up; else it reads whole
// tables, quickly, and of items, backlog and attempts only those that the condition names.
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
