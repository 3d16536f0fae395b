package postgres

import (
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/where"
)

// Readers of many items go from what is between $1 and $2 of the ids, and look up the rest row by row. Each
// place to begin with is a SELECT of its own, which OFFSET keeps apart: the planner, whatever it believes of
// the tables, neither joins them as wholes nor begins elsewhere.
const (
	fromItems   = `(SELECT i.* FROM {{S}}.ledger_items i WHERE i.id > $1 AND i.id <= $2 ORDER BY i.id{{DESC}} OFFSET 0) i`
	fromBacklog = `(SELECT b.* FROM {{S}}.ledger_backlog b WHERE b.item_id > $1 AND b.item_id <= $2 ORDER BY b.item_id{{DESC}} OFFSET 0) b`
	fromStuck   = `(SELECT b.* FROM {{S}}.ledger_backlog b WHERE b.state >= 3 AND b.item_id > $1 AND b.item_id <= $2 ORDER BY b.state, b.kind, b.item_id OFFSET 0) b`
	fromLeased  = `(SELECT b.* FROM {{S}}.ledger_backlog b WHERE b.state = 2 AND b.item_id > $1 AND b.item_id <= $2 ORDER BY b.expires_at OFFSET 0) b`

	itsItem    = ` CROSS JOIN LATERAL (SELECT i.* FROM {{S}}.ledger_items i WHERE i.id = b.item_id OFFSET 0) i`
	itsBacklog = ` LEFT JOIN LATERAL (SELECT b.* FROM {{S}}.ledger_backlog b WHERE b.item_id = i.id OFFSET 0) b ON true`
)

// start is where a reader of what a filter matches begins: with what is stuck or leased, which is little;
// with what is open; with what an index leads to by id or key; or with the items.
func start(f ledger.Filter) (from string, backlog bool) {
	all := parts(f)
	has := func(some func(p ledger.Filter) bool) bool { return slices.ContainsFunc(all, some) }
	only := func(states ...ledger.State) bool {
		return has(func(p ledger.Filter) bool {
			return len(p.States) > 0 && !slices.ContainsFunc(p.States, func(st ledger.State) bool { return !slices.Contains(states, st) })
		})
	}
	switch {
	case has(func(p ledger.Filter) bool { return p.IDs != nil || p.Key != "" || p.Prefix != "" }):
		return "", false
	case only(ledger.StateDead, ledger.StateDoubt):
		return fromStuck, true
	case only(ledger.StateLeased), has(func(p ledger.Filter) bool { return len(p.Agents) > 0 && !slices.Contains(p.Agents, "") }):
		return fromLeased, true
	case only(states[:]...), has(unfinished), has(func(p ledger.Filter) bool { return len(p.Priorities) > 0 }):
		return fromBacklog, true
	}
	return fromItems, false
}

// unfinished says that a filter asks for rounds that only what is in the backlog can have.
func unfinished(p ledger.Filter) bool {
	return len(p.Rounds) > 0 && !slices.Contains(p.Rounds, ledger.RoundDone) && !slices.Contains(p.Rounds, ledger.RoundCancelled)
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

// bounded names $1 and $2, which the filter has as well.
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
		return `{{S}}.ledger_items i LEFT JOIN {{S}}.ledger_backlog b ON b.item_id = i.id` + bounded
	}
	return `{{S}}.ledger_items i` + bounded
}

// parts are all filters that must match for f to match.
func parts(f ledger.Filter) []ledger.Filter {
	all := []ledger.Filter{f}
	for _, g := range f.Also {
		all = append(all, parts(g)...)
	}
	return all
}
