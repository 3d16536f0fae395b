package lockable

import (
	"fmt"
	"math"
	"strings"
)

// This file writes the statements. Both databases share this:
//
// A claim looks for rows by three searches, each with its own index: for live rows of the agent and for expired rows by
// expires_at, for free rows in the given order. A single condition that joins them with OR has no index. Of the expired
// rows only those that expired longest ago are read, as many as candidates, so a claim costs the same after an outage
// in which all rows expired. Among them the given order holds.
//
// Names in these statements begin with ledgerd_: they share a scope with names of the user's own.

// candidates is how many live rows of the agent, and how many expired ones, a claim chooses from.
const candidates = maxRows

// tokenLength is the length of a UUID as text.
const tokenLength = 36

// all returns the bounds of all values of the expires_at column. Unlike IS NOT NULL, a condition with bounds can use an
// index, and a planner without statistics believes that few rows pass it.
func (p *plan) all() (least, most string) {
	switch p.untilClass {
	case timestamptz:
		return "'-infinity'", "'infinity'"
	case number:
		return fmt.Sprint(math.MinInt64 + 1), fmt.Sprint(math.MaxInt64)
	}
	return "'0'", "':'" // text begins with a digit
}

// now is the database's clock as a value of the expires_at column, in a form that an index condition may use.
func (p *plan) now() string {
	switch {
	case p.untilClass == timestamptz:
		return "(SELECT clock_timestamp())"
	case p.postgres:
		return "(SELECT floor(extract(epoch FROM clock_timestamp()))::bigint)"
	case p.untilClass == number:
		return "unixepoch('now')"
	}
	return "strftime('%Y-%m-%d %H:%M:%f', 'now')"
}

// end is when a claim that is made now will expire. Whole seconds are rounded up.
func (p *plan) end() string {
	s := p.TTL.Seconds()
	switch {
	case p.untilClass == timestamptz:
		return fmt.Sprintf("clock_timestamp() + interval '%.6f seconds'", s)
	case p.postgres:
		return fmt.Sprintf("ceil(extract(epoch FROM clock_timestamp()) + %.6f)::bigint", s)
	case p.untilClass == number:
		return fmt.Sprintf("CAST(ceil(unixepoch('now', 'subsec') + %.3f) AS INTEGER)", s)
	}
	return fmt.Sprintf("strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', '+%.3f seconds')", s)
}

// condition is the user's condition, and that no column is NULL whose field cannot hold NULL.
func (p *plan) condition(args *params) string {
	terms := []string{}
	if strings.TrimSpace(p.Where) != "" {
		terms = append(terms, "("+args.fill(p.Where, p.Args)+"\n)")
	}
	for _, c := range p.required {
		terms = append(terms, p.bare+"."+c+" IS NOT NULL")
	}
	if len(terms) == 0 {
		return "1 = 1"
	}
	return strings.Join(terms, " AND ")
}

// ordering is the user's order, else the order of the key.
func (p *plan) ordering() string {
	if strings.TrimSpace(p.OrderBy) == "" {
		return p.list("", p.keys)
	}
	return p.OrderBy + "\n"
}

// parameter is an argument as a value of a column's type.
func (p *plan) parameter(args *params, v any, cast string) string {
	s := args.add(v)
	if p.postgres {
		return "CAST(" + s + " AS " + cast + ")"
	}
	return s
}

func (p *plan) params() *params {
	if p.postgres {
		return &params{prefix: "$"}
	}
	return &params{prefix: "?"}
}

// agentCast is the type of an agent's parameter, without a length: a cast to one would cut the text.
func (p *plan) agentCast() string {
	switch p.byClass {
	case number:
		return "bigint"
	case uuidType:
		return "uuid"
	}
	return "text"
}

// stamp are the assignments of a claim. A row that the agent still holds keeps its token: no other agent has had it.
func (p *plan) stamp(args *params, agent, token, now string) string {
	set := fmt.Sprintf("%s = %s, %s = %s", p.by, agent, p.until, p.end())
	if p.token != "" {
		set += fmt.Sprintf(", %s = CASE WHEN %s = %s AND %s > %s AND %[1]s IS NOT NULL THEN %[1]s ELSE %[6]s END",
			p.token, p.qualified(p.by), agent, p.qualified(p.until), now, p.parameter(args, token, p.tokenCast))
	}
	return set
}

// list are columns of the table, each after a prefix.
func (p *plan) list(prefix string, columns []string) string {
	all := make([]string, len(columns))
	for i, c := range columns {
		all[i] = prefix + p.qualified(c)
	}
	return strings.Join(all, ", ")
}

func (p *plan) qualified(column string) string { return p.bare + "." + column }

// freed are the assignments that free a row.
func (p *plan) freed() string {
	set := p.by + " = NULL, " + p.until + " = NULL"
	if p.token != "" {
		set += ", " + p.token + " = NULL"
	}
	return set
}

// result are the columns that a claim returns.
func (p *plan) result() string {
	list := []string{p.list("", p.columns), p.qualified(p.until)}
	if p.token != "" {
		list = append(list, "CAST("+p.qualified(p.token)+" AS text)")
	}
	return strings.Join(list, ", ")
}

// live, expired and free are the conditions of the three ways to look for a row.
func (p *plan) live(agent, now string) string {
	_, most := p.all()
	return fmt.Sprintf("%[1]s = %[2]s AND %[3]s > %[4]s AND %[3]s <= %[5]s", p.qualified(p.by), agent,
		p.qualified(p.until), now, most)
}

func (p *plan) expired(now string) string {
	least, _ := p.all()
	return fmt.Sprintf("%s IS NOT NULL AND %s BETWEEN %s AND %s", p.qualified(p.by), p.qualified(p.until), least, now)
}

func (p *plan) free() string { return p.qualified(p.by) + " IS NULL" }

// claimable is the condition that a row is live, expired or free. It is for rows that were found: no index serves it.
func (p *plan) claimable(agent, now string) string {
	return fmt.Sprintf("(%s OR %s = %s OR %s <= %s)", p.free(), p.qualified(p.by), agent, p.qualified(p.until), now)
}

// first is 0 for rows of the agent, and 1 for others: rows of the agent come first.
func (p *plan) first(agent string) string {
	return fmt.Sprintf("CASE %s WHEN %s THEN 0 ELSE 1 END", p.qualified(p.by), agent)
}

// numbered are the names that n key columns have within a statement.
func numbered(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("ledgerd_k", i)
	}
	return names
}

// joined is the condition that the key columns equal those of an alias.
func (p *plan) joined(alias string) string {
	terms := make([]string, len(p.keys))
	for i, k := range numbered(len(p.keys)) {
		terms[i] = p.qualified(p.keys[i]) + " = " + alias + "." + k
	}
	return strings.Join(terms, " AND ")
}

// claimPostgres picks, locks and stamps rows in one statement. Each returned row begins with its place
// in the order.
//
// It waits for no lock: rows that others have locked are skipped. Keys pass from step to step as arrays, because the
// planner joins an unnested array by the key. It may run a sub-select with a LIMIT again for each row, or hash the
// whole table, since it does not know how few rows the sub-select returns. Each array is read by a sub-select: if it
// were a column of FROM, every row that is sorted or locked would carry a copy.
func (p *plan) claimPostgres(agent any, token string, limit int) (string, []any) {
	args := p.params()
	who := p.parameter(args, agent, p.agentCast())
	n := p.parameter(args, limit, "bigint")
	where, order := p.condition(args), p.ordering()
	keys, names := p.list("", p.keys), numbered(len(p.keys))
	arrays, list := each(names, "array_agg(%) AS %"), strings.Join(names, ", ")
	// One look at the clock, so that no row is both live and expired.
	const now = "(SELECT ledgerd_now FROM ledgerd_clock)"
	const lock = "FOR NO KEY UPDATE" // others may still add rows that refer to these
	var b strings.Builder
	fmt.Fprintf(&b, "WITH ledgerd_clock AS MATERIALIZED (SELECT %s AS ledgerd_now),\n", p.now())
	fmt.Fprintf(&b, "ledgerd_live (%s, ledgerd_first) AS MATERIALIZED (SELECT %s, 0 FROM %s WHERE %s AND %s ORDER BY "+
		"%s LIMIT %d),\n",
		list, keys, p.name, p.live(who, now), where, p.qualified(p.until), candidates)
	fmt.Fprintf(&b, "ledgerd_expired (%s, ledgerd_first) AS MATERIALIZED (SELECT %s, %s FROM %s WHERE %s AND %s ORDER "+
		"BY %s LIMIT %d),\n",
		list, keys, p.first(who), p.name, p.expired(now), where, p.qualified(p.until), candidates)
	fmt.Fprintf(&b, "ledgerd_held AS MATERIALIZED (SELECT * FROM ledgerd_live UNION ALL SELECT * FROM ledgerd_expired),\n")
	// The outer LIMIT stops the inner select before it locks more than there is room for.
	fmt.Fprintf(&b, "ledgerd_free (%s, ledgerd_first) AS MATERIALIZED (SELECT * FROM (SELECT %s, 1 FROM %s WHERE %s "+
		"AND %s ORDER BY %s LIMIT %s %s SKIP LOCKED) ledgerd_f\n LIMIT (SELECT greatest(0, %s - count(*)) FROM "+
		"ledgerd_held WHERE ledgerd_first = 0)),\n",
		list, keys, p.name, p.free(), where, order, n, lock, n)
	fmt.Fprintf(&b, "ledgerd_found AS MATERIALIZED (SELECT %s, array_agg(ledgerd_first) AS ledgerd_first FROM (SELECT "+
		"* FROM ledgerd_held UNION ALL SELECT * FROM ledgerd_free) ledgerd_u),\n", arrays)
	fmt.Fprintf(&b, "ledgerd_picked (%s) AS MATERIALIZED (SELECT %s FROM unnest(%s, (SELECT ledgerd_first FROM "+
		"ledgerd_found)) ledgerd_c (%s, ledgerd_first), %s\n WHERE %s AND %s AND %s ORDER BY ledgerd_c.ledgerd_first, %s "+
		"LIMIT %s %s OF %s SKIP LOCKED),\n",
		list, keys, each(names, "(SELECT % FROM ledgerd_found)"), list, p.name, p.joined("ledgerd_c"), p.claimable(who,
			now), where, order, n, lock, p.bare)
	fmt.Fprintf(&b, "ledgerd_keys AS MATERIALIZED (SELECT %s FROM ledgerd_picked)\n", arrays)
	fmt.Fprintf(&b, "UPDATE %s SET %s FROM unnest(%s) WITH ORDINALITY ledgerd_p (%s, ledgerd_place)\n WHERE %s "+
		"RETURNING ledgerd_p.ledgerd_place, %s",
		p.name, p.stamp(args, who, token, now), each(names, "(SELECT % FROM ledgerd_keys)"), list, p.joined("ledgerd_p"),
		p.result())
	return b.String(), args.args
}

// pickSQLite reads the keys of the rows that a claim would take, in order. SQLite returns updated rows in no order, so
// a claim is this statement and stampSQLite.
func (p *plan) pickSQLite(agent any, limit int) (string, []any) {
	args := p.params()
	who, n := args.add(agent), args.add(limit)
	where, order := p.condition(args), p.ordering()
	keys := make([]string, len(p.keys))
	names := numbered(len(p.keys))
	for i, k := range p.keys {
		keys[i] = p.qualified(k) + " AS " + names[i]
	}
	list := strings.Join(keys, ", ")
	var b strings.Builder
	// Each + keeps a value as it is stored: the driver makes a time of some columns.
	fmt.Fprintf(&b, "SELECT %s FROM (\n", each(names, "+ledgerd_c.%"))
	fmt.Fprintf(&b, "SELECT * FROM (SELECT %s, 0 AS ledgerd_first FROM %s WHERE %s AND %s ORDER BY %s LIMIT %d)\n",
		list, p.name, p.live(who, p.now()), where, p.qualified(p.until), candidates)
	fmt.Fprintf(&b, "UNION ALL SELECT * FROM (SELECT %s, %s FROM %s WHERE %s AND %s ORDER BY %s LIMIT %d)\n",
		list, p.first(who), p.name, p.expired(p.now()), where, p.qualified(p.until), candidates)
	// Most rows are free, so an index on locked_by is a bad way to find them.
	fmt.Fprintf(&b, "UNION ALL SELECT * FROM (SELECT %s, 1 FROM %s WHERE likely(%s) AND %s ORDER BY %s LIMIT %s)\n",
		list, p.name, p.free(), where, order, n)
	fmt.Fprintf(&b, ") ledgerd_c CROSS JOIN %s WHERE %s ORDER BY ledgerd_c.ledgerd_first, %s LIMIT %s", p.name,
		p.joined("ledgerd_c"), order, n)
	return b.String(), args.args
}

// stampSQLite claims rows that were picked, unless another agent has claimed them since. Each returned row begins with
// its key as pickSQLite returns it.
func (p *plan) stampSQLite(agent any, token string, keys [][]any) (string, []any) {
	args := p.params()
	who := args.add(agent)
	where, set := p.condition(args), p.stamp(args, who, token, p.now())
	query := fmt.Sprintf("UPDATE %s SET %s\n WHERE (%s) IN (VALUES %s) AND %s AND %s RETURNING %s, %s", p.name, set,
		p.list("", p.keys), p.values(args, keys, nil), p.claimable(who, p.now()), where, p.list("+", p.keys), p.result())
	return query, args.args
}

// values are keys, each followed by a token unless tokens is nil, as rows of a VALUES list.
func (p *plan) values(args *params, keys [][]any, tokens []string) string {
	lines := make([]string, len(keys))
	for i, key := range keys {
		var cells []string
		for k, v := range key {
			cells = append(cells, p.parameter(args, v, p.keyCasts[k]))
		}
		if tokens != nil {
			cells = append(cells, p.parameter(args, tokens[i], p.tokenCast))
		}
		lines[i] = "(" + strings.Join(cells, ", ") + ")"
	}
	return strings.Join(lines, ", ")
}

// held is the statement that sets columns of rows that an agent holds; if the table has tokens, under these tokens.
func (p *plan) held(set string, args *params, agent any, keys [][]any, tokens []string) string {
	names := numbered(len(p.keys))
	given, list := names, p.list("", p.keys)
	match := fmt.Sprintf("%s = %s", p.qualified(p.by), p.parameter(args, agent, p.agentCast()))
	if p.token == "" {
		tokens = nil
	} else {
		given = append(given, "ledgerd_token")
		match += fmt.Sprintf(" AND %s = ledgerd_v.ledgerd_token", p.qualified(p.token))
	}
	values := p.values(args, keys, tokens)
	if !p.postgres {
		columns := make([]string, len(given))
		for i, g := range given {
			columns[i] = fmt.Sprintf("column%d AS %s", i+1, g)
		}
		return fmt.Sprintf("UPDATE %s SET %s FROM (SELECT %s FROM (VALUES %s)) ledgerd_v WHERE %s AND %s", p.name, set,
			strings.Join(columns, ", "), values, p.joined("ledgerd_v"), match)
	}
	// Rows are locked one by one in the order of the key, so that two such statements never wait for each other, and each
	// row is found by an index, whatever the statistics are.
	var b strings.Builder
	fmt.Fprintf(&b, "WITH ledgerd_held (%s) AS MATERIALIZED (SELECT ledgerd_t.* FROM (SELECT * FROM (VALUES %s) "+
		"ledgerd_u (%s) ORDER BY %[1]s) ledgerd_v\n",
		strings.Join(names, ", "), values, strings.Join(given, ", "))
	fmt.Fprintf(&b, " CROSS JOIN LATERAL (SELECT %s FROM %s WHERE %s AND %s FOR NO KEY UPDATE) ledgerd_t),\n", list,
		p.name, p.joined("ledgerd_v"), match)
	fmt.Fprintf(&b, "ledgerd_keys AS MATERIALIZED (SELECT %s FROM ledgerd_held)\n", each(names, "array_agg(%) AS %"))
	fmt.Fprintf(&b, "UPDATE %s SET %s FROM unnest(%s) ledgerd_p (%s) WHERE %s", p.name, set,
		each(names, "(SELECT % FROM ledgerd_keys)"),
		strings.Join(names, ", "), p.joined("ledgerd_p"))
	return b.String()
}

// overdue is the statement that frees up to limit expired rows of all agents, also outside of the user's condition.
func (p *plan) overdue(limit int) (string, []any) {
	args := p.params()
	keys, names := p.list("", p.keys), numbered(len(p.keys))
	pick := fmt.Sprintf("SELECT %s FROM %s WHERE %s ORDER BY %s LIMIT %s", keys, p.name, p.expired(p.now()),
		p.qualified(p.until), p.parameter(args, limit, "bigint"))
	if !p.postgres {
		return fmt.Sprintf("UPDATE %s SET %s WHERE (%s) IN (%s)", p.name, p.freed(), keys, pick), args.args
	}
	return fmt.Sprintf("WITH ledgerd_over (%s) AS MATERIALIZED (%s FOR NO KEY UPDATE SKIP LOCKED), ledgerd_keys AS "+
		"MATERIALIZED (SELECT %s FROM ledgerd_over)\nUPDATE %s SET %s FROM unnest(%s) ledgerd_p (%s) WHERE %s",
		strings.Join(names, ", "), pick, each(names, "array_agg(%) AS %"), p.name, p.freed(), each(names,
			"(SELECT % FROM ledgerd_keys)"), strings.Join(names, ", "), p.joined("ledgerd_p")), args.args
}
