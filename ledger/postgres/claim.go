package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/internal/code"
	"github.com/ledgerd/ledgerd/ledger/internal/sqlstore"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// claimTemplate picks ready rows, for each priority from its position on (see positions.go). It cuts the list before
// the first row that must be claimed alone, unless that is the first of all, and leases the rows before the cut. The
// sub-select runs once, into an array: as a join or IN (…) the planner may run it again and lease too many rows. The
// rows are updated by their ctid, so rows that another transaction has changed since the snapshot are left out, as are
// locked ones.
//
// A claim that names its items gives the place of each instead of positions.
//
// $1 kind, $2 agent, $3 lock_id, $4 ttl, $5 limit, $6 priorities, $7 and $8 their positions, $9 floor. Where claims
// share the statement, $2 and $3 are lists: the agent and the lock_id of the first row, of the second one, and so on.
const claimTemplate = `WITH clock AS MATERIALIZED (SELECT {{NOW}} AS now),
picked AS MATERIALIZED (
 SELECT x.item_id, x.place, x.alone FROM unnest($6::smallint[], $7::timestamptz[], $8::bigint[]) p(priority, due, id)
 CROSS JOIN LATERAL (
  SELECT item_id, ctid AS place, alone FROM {{S}}.ledger_backlog
  WHERE ` + isReady + ` AND gate = ` + code.Free + ` AND kind = $1 AND priority = p.priority AND (due_at, item_id) {{FROM}} (p.due, p.id){{SHARD}}
  ORDER BY due_at, item_id LIMIT {{LIMIT}} FOR UPDATE SKIP LOCKED) x
 WHERE NOT coalesce((SELECT paused OR limits <> '' FROM {{S}}.ledger_kinds WHERE kind = $1), false)
 LIMIT {{LIMIT}}),
cut AS MATERIALIZED (
 SELECT ids[:most] AS ids, places[:most] AS places, cardinality(ids) AS n
 FROM (SELECT ARRAY(SELECT item_id FROM picked) AS ids, ARRAY(SELECT place FROM picked) AS places, ARRAY(SELECT alone FROM picked) AS suspects) s
 CROSS JOIN LATERAL (SELECT greatest(1, coalesce(array_position(suspects, true) - 1, $5::int)) AS most) m),
c AS (
 UPDATE {{S}}.ledger_backlog SET attempt = greatest(attempt, $9::bigint) + 1, lock_id = {{LOCK}} WHERE ctid = ANY((SELECT places FROM cut)::tid[])
 RETURNING ` + leasedReturning + `, lock_id),
l AS (INSERT INTO {{S}}.ledger_leases (lock_id, kind, agent, leased_at, expires_at, due_at, items)
 SELECT {{LEASES}})
SELECT (SELECT n FROM cut), (SELECT now FROM clock), ` + leasedColumns + `,
 i.id, ` + itemColumns + `{{HOLDER}} FROM c JOIN {{S}}.ledger_items i ON i.id = c.item_id`

// The parts of claimTemplate that differ where claims share the statement.
var (
	ofOne = strings.NewReplacer("{{HOLDER}}", "", "{{LOCK}}", "$3", "{{LEASES}}",
		"$3, $1, $2, now, now + $4::interval, now + $4::interval, ids FROM clock, cut WHERE n > 0")
	ofSeveral = strings.NewReplacer("{{HOLDER}}", ", c.lock_id",
		"{{LOCK}}", "($3::uuid[])[array_position((SELECT places FROM cut), ctid)]",
		"{{LEASES}}", `lock_id, $1, agent, min(now), min(now) + $4::interval, min(now) + $4::interval, array_agg(id)
 FROM clock, cut, unnest($3::uuid[], $2::text[], ids) x(lock_id, agent, id) WHERE id IS NOT NULL GROUP BY lock_id, agent`)
)

// notHeld is the limit of a claim that resumes: $5 less what its agent holds already.
const notHeld = `(SELECT greatest(0, $5::int - count(*)) FROM {{S}}.ledger_leases l` + heldRows +
	` WHERE l.kind = $1 AND l.agent = $2{{HELD}})`

// inShard is the condition that a row is in a shard. For a plain comparison the planner assumes that one row in 200
// passes it, for this form that half of the rows do.
func inShard(count, index string) string {
	return ` AND coalesce(slot % ` + count + `::int = ` + index + `::int, false)`
}

// claimSQL are the variants of claimTemplate for one claim: [named][shard][resume]. coalescedSQL are those for several
// claims: [shard]. The limit is in a sub-select, so the planner does
// not know it. Then it assumes a tenth of the rows, and walks the index in its order. If it knew a limit of 500, and
// believed by old statistics or for a shard that there are fewer rows, it would read and sort all ready rows.
var claimSQL, coalescedSQL = func() (variants [2][2][2]string, coalesced [2]string) {
	for n, words := range []*strings.Replacer{strings.NewReplacer("{{FROM}}", ">=", "{{HELD}}", ""),
		strings.NewReplacer("{{FROM}}", "=", "{{HELD}}", " AND h.id = ANY($8::bigint[])")} {
		for i, shard := range []string{"", inShard("$10", "$11")} {
			for j, limit := range []string{"(SELECT $5::int)", notHeld} {
				all := strings.NewReplacer("{{SHARD}}", shard, "{{LIMIT}}", limit).Replace(claimTemplate)
				variants[n][i][j] = ofOne.Replace(words.Replace(all))
				if n+j == 0 {
					coalesced[i] = ofSeveral.Replace(words.Replace(all))
				}
			}
		}
	}
	return variants, coalesced
}()

// claim is one run of a claim statement.
type claim struct {
	g         ledger.Grant
	walks     [levels]*walk
	named     []scheduler.Candidate // the places of the items that g names; there are no walks then
	coalesced []*waitingClaim       // the claims that share the statement; nil: g is the only one
	picked    int                   // rows, before the cut
	laned     bool                  // the kind has or had limits
	out       []ledger.Record
	works     []ledger.Work // the Work of each record of out, in one allocation

	// Where each row is read into.
	work ledger.Work
	item ledger.Record
	lock pgtype.UUID // if coalesced
	dest []any
}

func (s *Store) newClaim(g ledger.Grant) *claim {
	c := blankClaim(g)
	c.walks = s.positions.claims(backlogPart{g.Kind, g.Shard})
	return c
}

// blankClaim is a claim without walks, for rows that are not found by positions.
func blankClaim(g ledger.Grant) *claim {
	c := &claim{g: g, work: ledger.Work{State: ledger.StateLeased, Agent: g.Agent, LockID: g.LockID}}
	c.item.Kind = g.Kind
	c.dest = slices.Concat([]any{&c.picked, &c.work.LeasedAt}, leasedDest(&c.work), []any{&c.item.ID},
		itemDest(&c.item))
	return c
}

// statement is the claim's SQL and arguments.
func (c *claim) statement() (template string, args []any) {
	g := c.g
	args = append([]any{g.Kind, g.Agent, pgUUID(g.LockID), g.TTL, g.Limit}, c.places()...)
	args = append(args, g.Floor)
	if c.coalesced != nil {
		args[1], args[2] = holders(c.coalesced)
	}
	named, shard, resume := 0, 0, 0
	if len(g.Items) > 0 {
		named = 1
	}
	if g.Shard.Count > 0 {
		shard = 1
		args = append(args, g.Shard.Count, g.Shard.Index)
	}
	if g.Resume {
		resume = 1
	}
	if c.coalesced != nil {
		return coalescedSQL[shard], args
	}
	return claimSQL[named][shard][resume], args
}

// places are where the walks of a claim begin, or where the items are that it names: priorities, due times and ids.
func (c *claim) places() []any {
	if n := len(c.named); n > 0 {
		priorities, dues, ids := make([]int16, n), make([]time.Time, n), make([]int64, n)
		for i, at := range c.named {
			priorities[i], dues[i], ids[i] = at.Priority, at.Due, at.ID
		}
		return []any{priorities, dues, ids}
	}
	priorities, dues, ids := make([]int16, levels), make([]time.Time, levels), make([]int64, levels)
	for i, w := range c.walks {
		priorities[i], dues[i], ids[i] = int16(i)+bounds.MinPriority, w.from.at, w.from.id
	}
	return []any{priorities, dues, ids}
}

// row reads a row of the result.
func (c *claim) row(scan scanner) error {
	if err := scan(c.dest...); err != nil {
		return err
	}
	if c.out == nil { // an idle poll takes no memory
		c.out, c.works = make([]ledger.Record, 0, c.g.Limit), make([]ledger.Work, 0, c.g.Limit)
	}
	w := c.work
	w.Due, w.LeasedAt = w.Due.UTC(), w.LeasedAt.UTC()
	w.ExpiresAt = w.LeasedAt.Add(c.g.TTL.Truncate(time.Microsecond))
	if c.coalesced != nil {
		w.LockID = c.lock.Bytes
		w.Agent = holder(c.coalesced, w.LockID)
	}
	c.works = append(c.works, w)
	r := c.item
	r.CreatedAt = r.CreatedAt.UTC()
	c.out = append(c.out, r)
	return nil
}

// addHistory adds to items that had attempts the newest ended one, for people to see. It is a separate statement, so
// items in their first attempt cost nothing more. The claim is committed by then: an error is ignored, since it must
// not lose the leases and above all not repeat the claim.
func (c *claim) addHistory(ctx context.Context, s *Store, conn *pgx.Conn) {
	again := map[int64]*ledger.Record{}
	for i := range c.out {
		if !c.g.FirstOf(c.out[i].ID, c.works[i].Attempt) {
			again[c.out[i].ID] = &c.out[i]
		}
	}
	if len(again) == 0 {
		return
	}
	var id int64
	var last sqlstore.LastRow
	row := targetsOf(append([]any{&id}, last.Dest()...)...)
	_ = direct{ctx, s, conn}.query(`SELECT i.id, `+sqlstore.LastColumns+` FROM {{S}}.ledger_items i `+lastAttempt+
		` WHERE i.id`+listed, []any{slices.Collect(maps.Keys(again))}, func(scan scanner) error {
		if err := row.scan(scan); err != nil {
			return err
		}
		again[id].Last = last.Last(id, again[id].Kind)
		return nil
	})
}

// Claim implements ledger.Store.
func (s *Store) Claim(ctx context.Context, g ledger.Grant) (ledger.Claimed, error) {
	laned, err := s.isLaned(ctx, g.Kind)
	var named []scheduler.Candidate
	if len(g.Items) > 0 && err == nil {
		named, laned, err = s.named(ctx, g)
	}
	if err != nil || len(g.Items) > 0 && len(named) == 0 {
		return ledger.Claimed{}, err
	}
	if laned {
		if got, err := s.claimLaned(ctx, g); err != nil || got.Limited || got.More {
			return got, err
		}
	}
	if g.LookFirst && !g.Resume && !laned && len(g.Items) == 0 {
		if some, err := s.someReady(ctx, g); err != nil || !some {
			return ledger.Claimed{}, err
		}
	}
	if mayCoalesce(g) {
		return s.coalesce(ctx, g, laned)
	}
	got, _, err := s.claim(ctx, g, named, nil, laned)
	return got, err
}

// claim runs a claim statement: that of g, or of several claims that share it. knew is whether it was known that the
// kind has or had limits. cut reports whether rows were left out: one of them must be claimed alone, or they have
// changed meanwhile.
func (s *Store) claim(ctx context.Context, g ledger.Grant, named []scheduler.Candidate, together []*waitingClaim,
	knew bool) (got ledger.Claimed, cut bool, err error) {
	var c *claim
	var held []ledger.Record
	err = s.run(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		s.drop(c)
		var err error
		if c, held = blankClaim(g), nil; len(g.Items) == 0 {
			c = s.newClaim(g)
		}
		c.named = named
		if err := c.share(together); err != nil {
			return err
		}
		if g.Resume {
			held, err = s.resume(ctx, conn, c)
		} else {
			template, args := c.statement()
			err = direct{ctx, s, conn}.query(template, args, c.row)
		}
		if err != nil {
			return committing(err)
		}
		c.addHistory(ctx, s, conn)
		return nil
	})
	if err != nil {
		s.drop(c)
		return ledger.Claimed{}, false, err
	}
	got, err = s.claimed(ctx, c, held, knew)
	return got, c.picked > len(c.out), err
}

// drop ends the walks of a claim that failed. They may have ended before: see errUnreplicated.
func (s *Store) drop(c *claim) {
	if c != nil && len(c.g.Items) == 0 {
		s.positions.failed(c.walks[:]...)
	}
}

// claimed is the answer of a committed claim. held are the leases that it resumed. knew is whether this process knew
// that the kind has or had limits. If it did not, and nothing was claimed, More is true: the caller claims again under
// the limits.
func (s *Store) claimed(ctx context.Context, c *claim, held []ledger.Record, knew bool) (ledger.Claimed, error) {
	out := c.records()
	s.remember(ctx, c, len(held))
	if len(held) > 0 {
		out = append(held, out...)
	}
	if len(out) > c.g.Limit { // cannot happen; if it does, no item may be worked
		return ledger.Claimed{}, fmt.Errorf("postgres: a claim of %d leased %d items", c.g.Limit, len(out))
	}
	s.laned.learn(c.g.Kind, c.laned)
	return ledger.Claimed{Records: out, More: c.laned && !knew && len(out) == 0}, nil
}

// records are what the claim leased, in the order of claims.
func (c *claim) records() []ledger.Record {
	for i := range c.out {
		c.out[i].Work = &c.works[i]
	}
	slices.SortFunc(c.out, sqlstore.CompareClaimed)
	return c.out
}

// resumeTemplate extends the leases that an agent holds and reads their records: $1 kind, $2 agent, $3 ttl, $4 limit.
const resumeTemplate = `WITH clock AS MATERIALIZED (SELECT {{NOW}} + $3::interval AS until),
l AS MATERIALIZED (
 SELECT l.* FROM {{S}}.ledger_leases l WHERE l.kind = $1 AND l.agent = $2),
h AS MATERIALIZED (SELECT h.id, l.lock_id FROM l CROSS JOIN LATERAL unnest(l.items) h(id) ORDER BY h.id),
locked AS MATERIALIZED (
 SELECT x.* FROM h CROSS JOIN LATERAL (
  SELECT b.item_id, b.lock_id FROM {{S}}.ledger_backlog b WHERE b.item_id = h.id AND b.lock_id = h.lock_id FOR UPDATE) x
 LIMIT $4),
s AS (
 UPDATE {{S}}.ledger_leases SET split = true, due_at = least(due_at, (SELECT until FROM clock))
 WHERE lock_id = ANY(ARRAY(SELECT lock_id FROM locked))),
held AS (
 UPDATE {{S}}.ledger_backlog SET expires_at = (SELECT until FROM clock) WHERE item_id = ANY(ARRAY(SELECT item_id FROM locked))
 RETURNING *)
SELECT ` + recordColumns + ` FROM (SELECT ` + workOf + `, b.kind FROM held b LEFT JOIN l ON l.lock_id = b.lock_id) b JOIN {{S}}.ledger_items i ON i.id = b.item_id ` + lastAttempt + ` ORDER BY i.id`

// resumeNamed is resumeTemplate for those of the items $5.
var resumeNamed = strings.Replace(resumeTemplate, "h(id)", "h(id) WHERE h.id = ANY($5::bigint[])", 1)

// resume extends what the agent holds and claims the rest up to the limit. An advisory lock lets one call per agent run
// at a time, so a claim of the same agent from another window sees what this one leased.
func (s *Store) resume(ctx context.Context, conn *pgx.Conn, c *claim) (held []ledger.Record, err error) {
	g := c.g
	row := records()
	o := newOwn(ctx, s, conn)
	template, args := c.statement()
	for _, st := range []statement{
		{"SELECT pg_advisory_xact_lock($1)", []any{lockKey("agent", s.schema, g.Agent)}, nil},
		resuming(g, func(scan scanner) error {
			r, err := row.record(scan)
			held = append(held, r)
			return err
		}),
		{template, args, c.row},
	} {
		if err := o.later(st.sql, st.args, st.row); err != nil {
			return nil, err
		}
	}
	return held, o.commit()
}

// resuming is the statement that extends what the agent of a claim holds.
func resuming(g ledger.Grant, row func(scanner) error) statement {
	args := []any{g.Kind, g.Agent, g.TTL, g.Limit}
	if len(g.Items) > 0 {
		return statement{resumeNamed, append(args, g.Items), row}
	}
	return statement{resumeTemplate, args, row}
}

// remember moves the positions to the last rows that a committed claim leased. held is how many leases it resumed.
func (s *Store) remember(ctx context.Context, c *claim, held int) {
	if len(c.g.Items) > 0 {
		return
	}
	wanted := c.g.Limit - held
	var f found
	var last [levels]place
	for i := range c.out {
		w := c.out[i].Work
		f.now = w.LeasedAt
		level := w.Priority - bounds.MinPriority
		last[level] = place{w.Due, c.out[i].ID}
		f.last[level] = &last[level]
	}
	f.all = c.picked < wanted && len(c.out) == c.picked // not so when the list was cut
	if len(c.out) == 0 && wanted > 0 && c.walks[0].whole && f.now.IsZero() {
		// Nothing ready, or paused, or all picked rows have changed meanwhile: then others are overlooked until the
		// next whole walk. Ask for the time, so that the next claim need not go over the entries of all that was worked
		// before this process began.
		err := s.lookUp(ctx, func(ss session) error {
			return ss.query(
				`SELECT {{NOW}}, coalesce(bool_or(laned), false) FROM {{S}}.ledger_kinds WHERE kind = $1 HAVING NOT coalesce(bool_or(paused), false)`, []any{c.g.Kind},
				func(scan scanner) error { return scan(&f.now, &c.laned) })
		})
		if err != nil {
			s.drop(c)
			return
		}
	}
	s.positions.claimed(c.walks, f)
}
