package postgres

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/code"
	"github.com/ledgerd/ledgerd/ledger/internal/sqlstore"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// Items that need resources. An item that a claim passed over is laid aside: blocked_on names the resource,
// and it is not looked at again until somebody frees that. See scheduler.Claim.Pick for the rule.
//
// Of such kinds one claim at a time runs in a ledger, under an advisory lock: it reads what is held,
// chooses here, and books what it chose. It waits for nothing else: it passes over rows that others
// have locked, and what it takes is free. A transaction that frees resources deletes their rows after
// those of the backlog. It wakes the items that wait for them after its commit, once a claim that may just be laying
// them aside has ended. So there is no deadlock.

const (
	// examined is how many items that need resources one round of a claim looks at, at least.
	examined = 100
	// wakes is how many of each kind that wait for a resource are looked at again when it is free: the
	// first in order gets it, and the others are there in case that it needs something else.
	wakes = 4
)

// gates is what a process knows of kinds whose items are not claimed freely.
type gates struct {
	wakes  int // the constant of the same name, but in tests
	sweeps sqlstore.Pace

	mu    sync.Mutex
	kinds map[string]kindGates
}

// kindGates reports whether a kind has items that need resources, and whether it has or had limits. What
// is false is looked up again by every claim.
type kindGates struct{ gated, laned bool }

// learn takes note of what was seen of a kind. It reports whether it has any of both.
func (g *gates) learn(kind string, gated, laned bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.kinds == nil {
		g.kinds = map[string]kindGates{}
	}
	have, ok := g.kinds[kind]
	if now := (kindGates{have.gated || gated, have.laned || laned}); !ok || now != have {
		have = now
		g.kinds[kind] = now
	}
	return have.gated || have.laned
}

func (g *gates) known(kind string) (have kindGates, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	have, known = g.kinds[kind]
	return have, known
}

// gatesOf reports whether a claim of the kind has to look for items that need resources, and whether there
// may be limits. A process asks once; later every claim that finds something tells of the one, and one
// that finds nothing of both once a second.
func (s *Store) gatesOf(ctx context.Context, kind string) (gated, laned bool, err error) {
	if have, known := s.gates.known(kind); known {
		return have.gated, have.laned, nil
	}
	err = s.lookUp(ctx, func(ss session) error {
		return ss.query(`SELECT gated, laned FROM {{S}}.ledger_kinds WHERE kind = $1`, []any{kind}, func(scan scanner) error {
			return scan(&gated, &laned)
		})
	})
	if err != nil {
		return false, false, err
	}
	s.gates.learn(kind, gated, laned)
	have, _ := s.gates.known(kind)
	return have.gated, have.laned, nil
}

// namesOf are the names of jsonNames in a column.
func namesOf(column string) string {
	return `CASE WHEN ` + column + ` <> '' THEN ARRAY(SELECT json_array_elements_text(` + column + `::json)) END`
}

const markGatedItems = `UPDATE {{S}}.ledger_kinds SET gated = true WHERE NOT gated AND kind IN (SELECT kind FROM {{S}}.ledger_items WHERE id` + listed + `)`

// markGated notes of kinds that they have items that need resources, before anything is inserted:
// like the kinds themselves, in order.
func (t *tx) markGated(items []ledger.Record) error {
	var kinds []string
	for i := range items {
		if len(items[i].Resources) > 0 && (len(kinds) == 0 || kinds[len(kinds)-1] != items[i].Kind) {
			kinds = append(kinds, items[i].Kind)
		}
	}
	if len(kinds) == 0 {
		return nil
	}
	slices.Sort(kinds)
	kinds = slices.Compact(kinds)
	for _, k := range kinds {
		t.s.gates.learn(k, true, false)
	}
	return t.later(`UPDATE {{S}}.ledger_kinds SET gated = true WHERE NOT gated AND kind = ANY($1)`, []any{kinds}, nil)
}

const (
	notPaused  = ` AND NOT coalesce((SELECT paused FROM {{S}}.ledger_kinds WHERE kind = $1), false)`
	takenNames = `ARRAY(SELECT r FROM unnest(i.resources) r WHERE (SELECT h.item_id FROM {{S}}.ledger_held h WHERE h.resource = r) IS NOT NULL)`

	// pickFree is what claimTemplate picks: $1 kind, $2 limit, $3 priorities, $4 and $5 their positions.
	pickFree = `SELECT x.item_id, p.priority, x.due_at, x.slot, x.alone FROM unnest($3::smallint[], $4::timestamptz[], $5::bigint[]) p(priority, due, id)
CROSS JOIN LATERAL (
 SELECT item_id, due_at, slot, alone FROM {{S}}.ledger_backlog
 WHERE ` + isReady + ` AND gate = ` + code.NoResource + ` AND kind = $1 AND priority = p.priority AND (due_at, item_id) >= (p.due, p.id){{SHARD}}
 ORDER BY due_at, item_id LIMIT (SELECT $2::int) FOR UPDATE SKIP LOCKED) x
WHERE true` + notPaused + ` LIMIT (SELECT $2::int)`

	pickGated = `WITH c AS MATERIALIZED (
 SELECT item_id, priority, due_at, slot, alone, passed_at FROM {{S}}.ledger_backlog
 WHERE ` + isReady + ` AND gate > ` + code.NoResource + ` AND blocked_on IS NULL AND kind = $1{{SHARD}}` + notPaused + `
 ORDER BY priority, due_at, item_id LIMIT (SELECT $2::int) FOR UPDATE SKIP LOCKED)
SELECT c.item_id, c.priority, c.due_at, c.slot, c.alone, c.passed_at, i.resources, ` + takenNames + `
FROM c CROSS JOIN LATERAL (SELECT i.resources FROM {{S}}.ledger_items i WHERE i.id = c.item_id LIMIT 1) i
ORDER BY c.priority, c.due_at, c.item_id`

	// readReserver reads who the reserver is, with its item if that is ready and not locked by others.
	readReserver = `SELECT r.item_id, r.kind, r.until, b.item_id, b.priority, b.due_at, b.slot, b.alone, b.passed_at, coalesce(b.blocked_on, ''), b.resources, b.taken
FROM {{S}}.ledger_reserver r LEFT JOIN LATERAL (
 SELECT c.*, i.resources, ` + takenNames + ` AS taken FROM (
  SELECT item_id, priority, due_at, slot, alone, passed_at, blocked_on FROM {{S}}.ledger_backlog
  WHERE item_id = r.item_id AND ` + isReady + ` AND gate = ` + code.SeveralResources + ` AND NOT coalesce((SELECT paused FROM {{S}}.ledger_kinds k WHERE k.kind = r.kind), false) LIMIT 1{{LOCK}}) c
 JOIN {{S}}.ledger_items i ON i.id = c.item_id) b ON true
WHERE r.one = 1` // of a table without statistics the planner expects a thousand rows, which would be worth compiling

	readKind = `SELECT {{NOW}}, coalesce(bool_or(gated), false), coalesce(bool_or(paused), false) FROM {{S}}.ledger_kinds WHERE kind = $1`

	// stampGated leases what was picked: $1 ids, $2 agent, $3 lock_id, $4 now, $5 ttl, $6 kind.
	stampGated = `WITH c AS (
 UPDATE {{S}}.ledger_backlog SET attempt = attempt + 1, lock_id = $3, blocked_on = NULL, passed_at = NULL WHERE item_id` + listed + `
 RETURNING ` + leasedReturning + `, gate),
` + leaseOfRows + `
SELECT $4::timestamptz, ` + leasedColumns + `,
 i.id, ` + itemColumns + `, i.resources, c.gate > ` + code.NoResource + `
FROM c JOIN {{S}}.ledger_items i ON i.id = c.item_id`

	insertHeld = `INSERT INTO {{S}}.ledger_held (resource, item_id, lock_id, since)
 SELECT resource, item_id, $3, $4 FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY u(resource, item_id, o) ORDER BY o`

	// appoint: $1 kind, $2 until.
	appoint = `UPDATE {{S}}.ledger_reserver r SET item_id = b.item_id, kind = $1, until = $2 FROM (
 SELECT item_id FROM {{S}}.ledger_backlog WHERE passed_at IS NOT NULL AND kind = $1 AND gate = ` + code.SeveralResources + `{{SHARD}} ORDER BY passed_at, item_id LIMIT 1) b`
)

// park: $1 ids in order, $2 resources, $3 since when.
const park = `UPDATE {{S}}.ledger_backlog b SET blocked_on = ($2::text[])[width_bucket(b.item_id, $1::bigint[])],
 passed_at = ($3::timestamptz[])[width_bucket(b.item_id, $1::bigint[])] WHERE b.item_id` + listed

// sharded completes a template with the condition of a shard, whose parameters follow the others.
func sharded(template string, shard scheduler.Shard, args []any) (string, []any) {
	if shard.Count == 0 {
		return strings.Replace(template, "{{SHARD}}", "", 1), args
	}
	params := map[int]string{2: "$3::int = $4::int", 3: "$4::int = $5::int", 5: "$6::int = $7::int"}[len(args)]
	return strings.Replace(template, "{{SHARD}}", ` AND coalesce(slot % `+params+`, false)`, 1), append(args, shard.Count,
		shard.Index)
}

// claimGated claims of a kind that has items that need resources. If it leased none, more tells
// whether there is more to look at.
func (s *Store) claimGated(ctx context.Context, conn *pgx.Conn, c *claim) (held []ledger.Record, more bool, err error) {
	if now := s.wall(); s.gates.sweeps.Due(now) {
		start := time.Now()
		if err := s.sweep(ctx, conn); err != nil {
			return nil, false, err
		}
		s.gates.sweeps.Took(now, time.Since(start))
	}
	o := newOwn(ctx, s, conn)
	defer func() {
		if err != nil {
			o.rollback()
		}
	}()
	p := picking{claim: c}
	if held, err = p.read(o); err != nil {
		return nil, false, uncommitted(err)
	}
	if p.paused {
		return held, false, o.commit()
	}
	limit := c.g.Limit - len(held)
	if more = p.gatedCount == max(c.g.Limit, examined); more { // what comes after those may come after others, too
		last := p.candidates[len(p.candidates)-1]
		p.candidates = slices.DeleteFunc(p.candidates, func(c scheduler.Candidate) bool {
			return scheduler.Compare(c, last) > 0
		})
	}
	slices.SortFunc(p.candidates, scheduler.Compare)
	claim := scheduler.Claim{Kind: c.g.Kind, Shard: c.g.Shard, Limit: limit}
	pick := claim.Pick(p.now, p.candidates, p.reserver)
	if err := p.book(o, pick); err != nil {
		return nil, false, uncommitted(err)
	}
	return held, more, o.commit()
}

// wall is the time of this process, or of a test.
func (s *Store) wall() time.Time {
	if s.clock != nil {
		return s.clock()
	}
	return time.Now()
}

// picking is what a claim has come upon.
type picking struct {
	*claim
	now        time.Time // of the database
	paused     bool
	candidates []scheduler.Candidate // last come those that need resources
	gatedCount int
	reserver   scheduler.Reserver
}

// gateLock is the lock of claims of items that need resources.
func (s *Store) gateLock() int64 { return lockKey("gate", s.schema) }

// read reads what there is to claim, and returns what the agent holds already.
func (p *picking) read(o *own) (held []ledger.Record, err error) {
	s, g := o.s, p.g
	_, args := p.statement()
	free, freeArgs := sharded(pickFree, g.Shard, []any{g.Kind, g.Limit, args[5], args[6], args[7]})
	gated, gatedArgs := sharded(pickGated, g.Shard, []any{g.Kind, max(g.Limit, examined)})
	// No process must wait for long for one that stands still between the two round trips.
	statements := []statement{{"SET LOCAL idle_in_transaction_session_timeout = '10s'", nil, nil}}
	if g.Resume {
		row := records()
		statements = append(statements,
			statement{"SELECT pg_advisory_xact_lock($1)", []any{lockKey("agent", s.schema, g.Agent)}, nil},
			statement{resumeTemplate, []any{g.Kind, g.Agent, g.TTL, g.Limit}, func(scan scanner) error {
				r, err := row.record(scan)
				held = append(held, r)
				return err
			}})
	}
	statements = append(statements,
		statement{"SELECT pg_advisory_xact_lock($1)", []any{s.gateLock()}, nil},
		statement{free, freeArgs, func(scan scanner) error {
			var c scheduler.Candidate
			err := scan(&c.ID, &c.Priority, &c.Due, &c.Slot, &c.Alone)
			c.Due = c.Due.UTC()
			p.candidates = append(p.candidates, c)
			p.picked++
			return err
		}},
		statement{gated, gatedArgs, func(scan scanner) error {
			var c scheduler.Candidate
			var passed *time.Time
			err := scan(&c.ID, &c.Priority, &c.Due, &c.Slot, &c.Alone, &passed, &c.Resources, &c.Taken)
			c.Due, c.PassedAt = c.Due.UTC(), utc(passed)
			p.candidates = append(p.candidates, c)
			p.gatedCount++
			return err
		}},
		statement{strings.Replace(readReserver, "{{LOCK}}", " FOR UPDATE SKIP LOCKED", 1), nil,
			func(scan scanner) (err error) {
				p.reserver, err = scanReserver(scan)
				return err
			}},
		statement{readKind, []any{g.Kind}, func(scan scanner) error {
			err := scan(&p.now, &p.gated, &p.paused)
			if p.now = p.now.UTC(); !p.paused {
				p.learnt = p.now
			}
			return err
		}})
	for _, st := range statements {
		if err := o.later(st.sql, st.args, st.row); err != nil {
			return nil, err
		}
	}
	return held, o.flush()
}

func scanReserver(scan scanner) (scheduler.Reserver, error) {
	var r scheduler.Reserver
	var id *int64
	var priority *int16
	var due, passed *time.Time
	var slot *int
	var alone *bool
	var c scheduler.Candidate
	err := scan(&r.ItemID, &r.Kind, &r.Until, &id, &priority, &due, &slot, &alone, &passed, &c.BlockedOn, &c.Resources,
		&c.Taken)
	r.Until = r.Until.UTC()
	if err == nil && id != nil {
		c.ID, c.Priority, c.Due, c.Slot, c.Alone, c.PassedAt = *id, *priority, utc(due), *slot, *alone, utc(passed)
		r.Item = &c
	}
	return r, err
}

// book writes what a claim chose, with the commit.
func (p *picking) book(o *own, pick scheduler.Pick) error {
	g := p.g
	var statements []statement
	if len(pick.Granted) > 0 {
		w := &p.work
		p.dest = append(p.dest[1:len(p.dest)-1:len(p.dest)-1], &p.item.Resources, &w.Gated)
		ids := slices.Sorted(slices.Values(pick.Granted))
		statements = append(statements, statement{stampGated, []any{ids, g.Agent, pgUUID(g.LockID), p.now, g.TTL,
			g.Kind}, p.row})
	}
	if len(pick.Taken) > 0 {
		names, ids := make([]string, len(pick.Taken)), make([]int64, len(pick.Taken))
		for i, t := range pick.Taken {
			names[i], ids[i] = t.Resource, t.ItemID
		}
		statements = append(statements, statement{insertHeld, []any{names, ids, pgUUID(g.LockID), p.now}, nil})
	}
	if n := len(pick.Parked); n > 0 {
		ids, names, since := make([]int64, n), make([]string, n), make([]time.Time, n)
		slices.SortFunc(pick.Parked, func(a, b scheduler.Park) int { return cmp.Compare(a.ItemID, b.ItemID) })
		for i, t := range pick.Parked {
			ids[i], names[i], since[i] = t.ItemID, t.Resource, t.Since
		}
		statements = append(statements, statement{park, []any{ids, names, since}, nil})
	}
	if r := pick.Reserver; r != nil {
		statements = append(statements, statement{`UPDATE {{S}}.ledger_reserver SET item_id = $1, kind = $2, until = $3`,
			[]any{r.ItemID, r.Kind, r.Until}, nil})
	}
	if !pick.Appoint.IsZero() {
		template, args := sharded(appoint, g.Shard, []any{g.Kind, pick.Appoint})
		statements = append(statements, statement{template, args, nil})
	}
	for _, st := range statements {
		if err := o.later(st.sql, st.args, st.row); err != nil {
			return err
		}
	}
	return nil
}

// wakeTemplate makes the first of those claimable again, of each kind, who wait for resources: $1
// their names, $2 how many.
var wakeTemplate = `WITH w AS MATERIALIZED (
 SELECT x.item_id FROM ` + unnest("text") + ` r(name) CROSS JOIN {{S}}.ledger_kinds k CROSS JOIN LATERAL (
  SELECT item_id FROM {{S}}.ledger_backlog WHERE blocked_on = r.name AND kind = k.kind ORDER BY priority, due_at, item_id LIMIT (SELECT $2::int) FOR UPDATE SKIP LOCKED) x
 WHERE k.gated AND NOT k.paused),
u AS (UPDATE {{S}}.ledger_backlog SET blocked_on = NULL WHERE item_id = ANY(ARRAY(SELECT item_id FROM w)) RETURNING kind)
SELECT kind FROM u UNION SELECT kind FROM {{S}}.ledger_reserver WHERE item_id > 0`

// waitedTemplate finds, name by name in their index, for which free resources somebody waits.
const waitedTemplate = `WITH RECURSIVE waited(name) AS (
 (SELECT blocked_on FROM {{S}}.ledger_backlog WHERE blocked_on IS NOT NULL ORDER BY blocked_on, kind, priority, due_at, item_id LIMIT 1)
 UNION ALL
 SELECT (SELECT b.blocked_on FROM {{S}}.ledger_backlog b WHERE b.blocked_on > w.name ORDER BY b.blocked_on, b.kind, b.priority, b.due_at, b.item_id LIMIT 1)
 FROM waited w WHERE w.name IS NOT NULL)
SELECT name FROM waited w WHERE name IS NOT NULL AND (SELECT h.item_id FROM {{S}}.ledger_held h WHERE h.resource = w.name) IS NULL`

const gateLockShared = "SELECT pg_advisory_xact_lock_shared($1)"

// Wake implements ledger.Tx.
func (t *tx) Wake(resources []string, woken func(kind string)) error {
	t.freed, t.woken = append(t.freed, resources...), woken
	return nil
}

// wake lets those look again who wait for resources that were freed by a transaction that has
// committed. If that fails, the next sweep does it.
func (s *Store) wake(ctx context.Context, conn *pgx.Conn, resources []string, woken func(kind string)) {
	if len(resources) == 0 || ctx.Err() != nil {
		return
	}
	o := newOwn(ctx, s, conn)
	err := o.later(gateLockShared, []any{s.gateLock()}, nil)
	if err == nil {
		err = o.later(wakeTemplate, []any{resources, s.gates.wakes}, func(scan scanner) error {
			var kind string
			err := scan(&kind)
			woken(kind)
			return err
		})
	}
	if err == nil {
		err = o.commit()
	}
	if err != nil {
		o.rollback()
	}
}

// sweep wakes those who wait for a resource that is free: whoever freed it did not.
func (s *Store) sweep(ctx context.Context, conn *pgx.Conn) error {
	o := newOwn(ctx, s, conn)
	var free []string
	err := o.later(gateLockShared, []any{s.gateLock()}, nil)
	if err == nil {
		err = o.query(waitedTemplate, nil, func(scan scanner) error {
			var name string
			err := scan(&name)
			free = append(free, name)
			return err
		})
	}
	if err == nil && len(free) > 0 {
		err = o.later(wakeTemplate, []any{free, s.gates.wakes}, nil)
	}
	if err != nil {
		o.rollback()
		return uncommitted(err)
	}
	return uncommitted(o.commit())
}

// Holds implements ledger.Store.
func (s *Store) Holds(ctx context.Context, resources []string) (out []scheduler.Hold, err error) {
	err = s.read(ctx, func(ss session) error {
		out = nil
		taken := map[string]bool{}
		err := ss.query(
			`SELECT h.resource, h.item_id, coalesce(b.locked_by, ''), h.since FROM {{S}}.ledger_held h JOIN `+work+` b ON b.item_id = h.item_id WHERE h.resource = ANY($1)`,
			[]any{resources}, func(scan scanner) error {
				var h scheduler.Hold
				err := scan(&h.Resource, &h.ItemID, &h.Agent, &h.Since)
				h.Since = h.Since.UTC()
				out, taken[h.Resource] = append(out, h), true
				return err
			})
		if err != nil {
			return err
		}
		var now time.Time
		if err := ss.query(`SELECT {{NOW}}`, nil, func(scan scanner) error { return scan(&now) }); err != nil {
			return err
		}
		return ss.query(strings.Replace(readReserver, "{{LOCK}}", "", 1), nil, func(scan scanner) error {
			r, err := scanReserver(scan)
			if err != nil || !r.InForce(now) {
				return err
			}
			for _, name := range r.Item.Resources {
				if slices.Contains(resources, name) && !taken[name] {
					out = append(out, scheduler.Hold{Resource: name, ItemID: r.ItemID, Since: r.Item.PassedAt})
				}
			}
			return nil
		})
	})
	slices.SortFunc(out, func(a, b scheduler.Hold) int { return cmp.Compare(a.Resource, b.Resource) })
	return out, err
}
