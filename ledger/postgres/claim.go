package postgres

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/ledger"
)

// claimTemplate picks ready rows, level by level from their positions, cuts the list before the
// first row that is to be claimed alone (unless it is the first), and stamps what is left. The
// sub-select runs once, into an array; joined, or as IN (…), the planner may run it again and
// lease more than was asked for.
//
// $1 kind, $2 agent, $3 lock_id, $4 ttl, $5 limit, $6 priorities, $7 and $8 their positions.
const claimTemplate = `WITH clock AS MATERIALIZED (SELECT {{NOW}} AS now),
picked AS MATERIALIZED (
 SELECT x.item_id, x.alone FROM unnest($6::smallint[], $7::timestamptz[], $8::bigint[]) p(priority, due, id)
 CROSS JOIN LATERAL (
  SELECT item_id, alone FROM {{S}}.ledger_backlog
  WHERE state = 1 AND gate = 0 AND kind = $1 AND priority = p.priority AND (due_at, item_id) >= (p.due, p.id){{SHARD}}
  ORDER BY due_at, item_id LIMIT {{LIMIT}} FOR UPDATE SKIP LOCKED) x
 WHERE NOT coalesce((SELECT paused OR limits <> '' FROM {{S}}.ledger_kinds WHERE kind = $1), false)
 LIMIT {{LIMIT}}),
cut AS MATERIALIZED (
 SELECT ids[:greatest(1, coalesce(array_position(suspects, true) - 1, $5::int))] AS ids, cardinality(ids) AS n
 FROM (SELECT ARRAY(SELECT item_id FROM picked) AS ids, ARRAY(SELECT alone FROM picked) AS suspects) s),
c AS (
 UPDATE {{S}}.ledger_backlog SET state = 2, attempt = attempt + 1, locked_by = $2, lock_id = $3,
  leased_at = (SELECT now FROM clock), expires_at = (SELECT now FROM clock) + $4::interval
 WHERE item_id = ANY((SELECT ids FROM cut)::bigint[])
 RETURNING item_id, priority, due_at, epoch, attempt, failures, crashes, losses, alone, leased_at, expires_at)
SELECT (SELECT n FROM cut), c.priority, c.due_at, c.epoch, c.attempt, c.failures, c.crashes, c.losses, c.alone, c.leased_at, c.expires_at,
 i.id, i.scope, i.key, i.fingerprint, i.payload, coalesce(i.shard_key, ''), i.slot, coalesce(i.every, ''), coalesce(i.zone, ''), coalesce(i.source, ''),
 i.epoch, i.base_attempt, i.created_at, coalesce((SELECT gated FROM {{S}}.ledger_kinds WHERE kind = $1), false)
FROM c JOIN {{S}}.ledger_items i ON i.id = c.item_id`

// A claim that resumes takes as many as its agent does not hold yet: this many.
const notHeld = `(SELECT greatest(0, $5::int - count(*)) FROM {{S}}.ledger_backlog WHERE state = 2 AND kind = $1 AND locked_by = $2)`

// Of a bare comparison with a shard the planner believes that one row in 200 passes it; of this,
// that half do.
const inShard = ` AND coalesce(slot % $9::int = $10::int, false)`

// claimSQL are the variants of claimTemplate: [shard][resume]. The limit hides in a sub-select: of
// one that it does not know the planner assumes that it is a tenth, and walks the index in its
// order. Where it knows that 500 are wanted and believes that there are fewer (by statistics of
// before, or in a shard), it reads and sorts all that is ready.
var claimSQL = func() (variants [2][2]string) {
	for i, shard := range []string{"", inShard} {
		for j, limit := range []string{"(SELECT $5::int)", notHeld} {
			variants[i][j] = strings.NewReplacer("{{SHARD}}", shard, "{{LIMIT}}", limit).Replace(claimTemplate)
		}
	}
	return variants
}()

// claim is one run of a claim.
type claim struct {
	g      ledger.Grant
	walks  [levels]*walk
	picked int       // rows that need no resources, before the cut
	gated  bool      // the kind has items that need resources
	laned  bool      // it has or had limits
	now    time.Time // of the database, if the kind is not paused; zero: not known
	out    []ledger.Record
	works  []ledger.Work // of out, in one piece

	// Where each row is read into.
	work ledger.Work
	item itemRow
	dest []any
}

func (s *Store) newClaim(g ledger.Grant) *claim {
	c := blankClaim(g)
	c.walks = s.positions.claims(backlogPart{g.Kind, g.Shard})
	return c
}

// blankClaim is one without walks.
func blankClaim(g ledger.Grant) *claim {
	c := &claim{g: g, work: ledger.Work{State: ledger.StateLeased, Agent: g.Agent, LockID: g.LockID}}
	w, r := &c.work, &c.item.r
	r.Kind = g.Kind
	c.dest = []any{&c.picked, &w.Priority, &w.Due, &w.Epoch, &w.Attempt, &w.Failures, &w.Crashes, &w.Losses, &w.Alone, &w.LeasedAt, &w.ExpiresAt,
		&r.ID, &r.Scope, &r.Key, &r.Fingerprint, &r.Payload, &r.ShardKey, &r.Slot, &r.Every, &r.Zone, &r.Source,
		&r.Epoch, &r.BaseAttempt, &r.CreatedAt, &c.gated}
	return c
}

// statement is the claim's SQL and arguments.
func (c *claim) statement() (template string, args []any) {
	g := c.g
	var priorities [levels]int16
	var dues [levels]time.Time
	var ids [levels]int64
	for i, w := range c.walks {
		priorities[i], dues[i], ids[i] = int16(i)+ledger.MinPriority, w.from.at, w.from.id
	}
	args = []any{g.Kind, g.Agent, pgUUID(g.LockID), g.TTL, g.Limit, priorities[:], dues[:], ids[:]}
	shard, resume := 0, 0
	if g.Shard.Count > 0 {
		shard = 1
		args = append(args, g.Shard.Count, g.Shard.Index)
	}
	if g.Resume {
		resume = 1
	}
	return claimSQL[shard][resume], args
}

// row takes a row of the result.
func (c *claim) row(scan scanner) error {
	if err := scan(c.dest...); err != nil {
		return err
	}
	if c.out == nil { // an idle poll takes no memory
		c.out, c.works = make([]ledger.Record, 0, c.g.Limit), make([]ledger.Work, 0, c.g.Limit)
	}
	w := c.work
	w.Due, w.LeasedAt, w.ExpiresAt = w.Due.UTC(), w.LeasedAt.UTC(), w.ExpiresAt.UTC()
	c.works = append(c.works, w)
	c.out = append(c.out, c.item.record())
	return nil
}

// history adds what is known of earlier attempts, to those that had some: a statement of its
// own, so that what is claimed for the first time does not pay for it.
func (c *claim) history(ss session) error {
	again := map[int64]*ledger.Record{}
	for i := range c.out {
		if c.works[i].Attempt > 1 {
			again[c.out[i].ID] = &c.out[i]
		}
	}
	if len(again) == 0 {
		return nil
	}
	var id int64
	var done doneRow
	var last lastRow
	dest := slices.Concat([]any{&id}, done.dest(), last.dest())
	return ss.query(`SELECT i.id, `+doneColumns+`, `+lastColumns+` FROM {{S}}.ledger_items i `+lastAttempt+` WHERE i.id`+listed,
		[]any{slices.Collect(maps.Keys(again))}, func(scan scanner) error {
			if err := scan(dest...); err != nil {
				return err
			}
			r := again[id]
			r.Last = last.last(id, r.Kind)
			done.tell(r)
			return nil
		})
}

// Claim implements ledger.Store.
func (s *Store) Claim(ctx context.Context, g ledger.Grant) (ledger.Claimed, error) {
	gated, laned, err := s.gatesOf(ctx, g.Kind)
	if err != nil {
		return ledger.Claimed{}, err
	}
	if laned {
		if got, err := s.claimLaned(ctx, g); err != nil || got.Limited {
			return got, err
		}
	}
	var c *claim
	var held []ledger.Record
	more := false // there is more to look at
	err = s.run(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		c, held = s.newClaim(g), nil
		var err error
		if gated {
			held, more, err = s.claimGated(ctx, conn, c)
		} else if g.Resume {
			held, err = s.resume(ctx, conn, c)
		} else {
			template, args := c.statement()
			err = direct{ctx, s, conn}.query(template, args, c.row)
		}
		if err != nil {
			s.positions.failed(c.walks[:]...)
			if !gated {
				err = committing(err)
			}
			return err
		}
		// The claim is committed. How earlier attempts ended is for people to see: for want of it
		// leases are not lost, and above all the claim is not repeated.
		_ = c.history(direct{ctx, s, conn})
		return nil
	})
	if err != nil {
		return ledger.Claimed{}, err
	}
	out := c.records()
	s.remember(ctx, c, len(held))
	learnt := s.gates.learn(g.Kind, c.gated, c.laned) && (!gated && c.gated || !laned && c.laned)
	if len(out) == 0 && len(held) == 0 && (more || learnt) {
		return s.Claim(ctx, g)
	}
	if len(held) > 0 {
		out = append(held, out...)
	}
	if len(out) > g.Limit { // cannot be; if it is, nobody must work on it
		return ledger.Claimed{}, fmt.Errorf("postgres: a claim of %d leased %d items", g.Limit, len(out))
	}
	return ledger.Claimed{Records: out}, nil
}

// records are what the claim leased, in the order of claims.
func (c *claim) records() []ledger.Record {
	for i := range c.out {
		c.out[i].Work = &c.works[i]
	}
	slices.SortFunc(c.out, func(a, b ledger.Record) int {
		return cmp.Or(cmp.Compare(a.Work.Priority, b.Work.Priority), a.Work.Due.Compare(b.Work.Due), cmp.Compare(a.ID, b.ID))
	})
	return c.out
}

// resumeTemplate moves the expiry of what an agent holds. A claim of the same agent from
// another window waits for the lock that was taken before it, and then sees what we claimed.
const resumeTemplate = `WITH held AS (
 UPDATE {{S}}.ledger_backlog SET expires_at = {{NOW}} + $3::interval
 WHERE item_id = ANY(ARRAY(
  SELECT item_id FROM {{S}}.ledger_backlog WHERE state = 2 AND kind = $1 AND locked_by = $2 ORDER BY item_id LIMIT $4 FOR UPDATE))
 RETURNING *)
SELECT ` + recordColumns + ` FROM held b JOIN {{S}}.ledger_items i ON i.id = b.item_id ` + lastAttempt + ` ORDER BY i.id`

// resume extends what the agent holds and claims the rest, one call per agent at a time.
func (s *Store) resume(ctx context.Context, conn *pgx.Conn, c *claim) (held []ledger.Record, err error) {
	g := c.g
	record := records()
	o := &own{ctx: ctx, s: s, pipe: pipe{conn, s.described}}
	template, args := c.statement()
	for _, st := range []statement{
		{"SELECT pg_advisory_xact_lock($1)", []any{lockKey("agent", s.schema, g.Agent)}, nil},
		{resumeTemplate, []any{g.Kind, g.Agent, g.TTL, g.Limit}, func(scan scanner) error {
			r, err := record(scan)
			held = append(held, r)
			return err
		}},
		{template, args, c.row},
	} {
		if err := o.later(st.sql, st.args, st.row); err != nil {
			return nil, err
		}
	}
	return held, o.commit()
}

// remember moves the positions to where the claim came.
func (s *Store) remember(ctx context.Context, c *claim, held int) {
	wanted := c.g.Limit - held
	f := found{now: c.now}
	var last [levels]place
	plain := 0
	for i := range c.out {
		w := c.out[i].Work
		if w.Gated { // of another index
			continue
		}
		plain++
		f.now = w.LeasedAt
		level := w.Priority - ledger.MinPriority
		last[level] = place{w.Due, c.out[i].ID}
		f.last[level] = &last[level]
	}
	f.all = c.picked < wanted && plain == c.picked // not so when the list was cut
	if len(c.out) == 0 && wanted > 0 && c.walks[0].whole && f.now.IsZero() {
		// Nothing ready, or paused. Ask for the time, so that the next claim need not go over
		// the entries of all that was worked before this process began.
		err := s.read(ctx, func(ss session) error {
			return ss.query(`SELECT {{NOW}}, coalesce(bool_or(gated), false), coalesce(bool_or(laned), false) FROM {{S}}.ledger_kinds WHERE kind = $1 HAVING NOT coalesce(bool_or(paused), false)`, []any{c.g.Kind},
				func(scan scanner) error { return scan(&f.now, &c.gated, &c.laned) })
		})
		if err != nil {
			s.positions.failed(c.walks[:]...)
			return
		}
	}
	s.positions.claimed(c.walks, f)
}
