package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/ledger"
)

// Beat implements ledger.Store.
func (s *Store) Beat(ctx context.Context, a ledger.Agent, ttl time.Duration) error {
	if ttl == 0 {
		return s.write(ctx, func(ss session) error {
			return ss.query(`DELETE FROM {{S}}.ledger_agents WHERE agent = $1`, []any{a.Name}, nil)
		})
	}
	kinds, err := json.Marshal(a.Kinds)
	if err != nil {
		return err
	}
	stalled, err := json.Marshal(a.Stalled)
	if err != nil {
		return err
	}
	configs, err := json.Marshal(a.Configs)
	if err != nil {
		return err
	}
	err = s.write(ctx, func(ss session) error {
		return ss.query(`INSERT INTO {{S}}.ledger_agents AS a (agent, host, pid, version, kinds, started_at, seen_at, expires_at, shard_index, shard_count, clock_skew, stalled, process, configs)
 SELECT $1, $2, $3, $4, $5, t.now, t.now, t.now + $6::interval, $7, $8, $9, $10, $11, $12 FROM (SELECT {{NOW}} AS now) t
 ON CONFLICT (agent) DO UPDATE SET host = excluded.host, pid = excluded.pid, version = excluded.version, kinds = excluded.kinds, seen_at = excluded.seen_at, expires_at = excluded.expires_at,
 shard_index = excluded.shard_index, shard_count = excluded.shard_count, clock_skew = excluded.clock_skew, stalled = excluded.stalled, process = excluded.process, configs = excluded.configs`,
			[]any{a.Name, a.Host, a.PID, a.Version, string(kinds), ttl, a.Shard.Index, a.Shard.Count, a.Skew.Microseconds(), string(stalled), a.Process, string(configs)}, nil)
	})
	if err != nil {
		return err
	}
	// Programs that are gone are forgotten when nothing is leased to them any more: until then
	// their leases must not look like those of people.
	return s.write(ctx, func(ss session) error {
		return ss.query(`DELETE FROM {{S}}.ledger_agents WHERE agent = ANY(ARRAY(
 SELECT a.agent FROM {{S}}.ledger_agents a WHERE a.expires_at <= (SELECT {{NOW}}) AND a.agent <> $1
  AND NOT EXISTS (SELECT FROM {{S}}.ledger_backlog b WHERE b.state = 2 AND b.locked_by = a.agent) FOR UPDATE OF a SKIP LOCKED))`, []any{a.Name}, nil)
	})
}

// pruneWhole is how often a process looks again for items to prune among all that ended, and not
// only among those since its last look.
const pruneWhole = 24 * time.Hour

// prunes remembers, by kind, up to when a process has pruned.
type prunes struct {
	mu     sync.Mutex
	byKind map[string]pruned
}

type pruned struct{ upto, whole time.Time }

func (p *prunes) from(kind string) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.byKind[kind]; time.Since(m.whole) < pruneWhole {
		return m.upto
	}
	return time.Time{}
}

func (p *prunes) reached(kind string, from, upto time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byKind == nil {
		p.byKind = map[string]pruned{}
	}
	m := p.byKind[kind]
	m.upto = upto
	if from.IsZero() {
		m.whole = time.Now()
	}
	p.byKind[kind] = m
}

// pruneKeeps selects the attempt n that an item i is pruned up to: the newest that was final, but
// of a recurring item the newest completion, if there is one.
const pruneKeeps = `FROM {{S}}.ledger_attempts n WHERE n.item_id = i.id AND n.final ORDER BY i.every IS NOT NULL AND n.outcome IN (0, 1) DESC, n.attempt DESC LIMIT 1`

// forget makes the next look one among all: of an item that recurs from now on, attempts may go
// that were kept before.
func (p *prunes) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.byKind)
}

// pruneFind finds items whose attempt that pruning keeps ended in time (finished ones of which
// there is something to remove, and recurring ones with attempts before it) and locks those that
// nobody else has locked. It walks the index of final attempts and stops at the limit: OFFSET
// and coalesce keep the planner from joining whole tables, because it takes the conditions for
// so rare that a walk would not come to the limit.
// $1 kind, $2 and $3 the span of time, $4 limit.
const pruneFind = `WITH picked AS MATERIALIZED (
 SELECT i.id, f.finished_at FROM {{S}}.ledger_attempts f
 CROSS JOIN LATERAL (SELECT i.id, i.every, i.payload FROM {{S}}.ledger_items i WHERE i.id = f.item_id OFFSET 0) i
 WHERE f.final AND f.kind = $1 AND f.finished_at >= $2 AND f.finished_at < $3 AND coalesce(
  f.attempt = (SELECT n.attempt ` + pruneKeeps + `)
  AND (EXISTS (SELECT FROM {{S}}.ledger_attempts e WHERE e.item_id = f.item_id AND e.attempt < f.attempt)
   OR i.every IS NULL AND num_nonnulls(nullif(i.payload, ''), f.output, f.log, f.error) > 0)
  AND (i.every IS NOT NULL OR (SELECT b.item_id FROM {{S}}.ledger_backlog b WHERE b.item_id = i.id) IS NULL), false)
 ORDER BY f.finished_at LIMIT $4),
locked AS MATERIALIZED (
 SELECT id FROM {{S}}.ledger_items WHERE id = ANY(ARRAY(SELECT id FROM picked)) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)
SELECT id, finished_at, id IN (SELECT id FROM locked) FROM picked ORDER BY finished_at`

// prune prunes items that are locked, if they still are as they were found.
const prune = `WITH p AS MATERIALIZED (
 SELECT i.id, f.attempt AS keep, i.every IS NULL AS finished FROM {{S}}.ledger_items i
 JOIN LATERAL (SELECT n.attempt, n.finished_at ` + pruneKeeps + `) f ON true
 WHERE i.id` + listed + ` AND f.finished_at < $2
  AND (i.every IS NOT NULL OR (SELECT b.item_id FROM {{S}}.ledger_backlog b WHERE b.item_id = i.id) IS NULL)),
d AS (DELETE FROM {{S}}.ledger_attempts a USING p WHERE a.item_id = p.id AND a.attempt < p.keep),
e AS (UPDATE {{S}}.ledger_attempts a SET output = NULL, log = NULL, error = NULL FROM p WHERE p.finished AND a.item_id = p.id AND a.attempt = p.keep),
u AS (UPDATE {{S}}.ledger_items i SET base_attempt = p.keep - 1, payload = CASE WHEN p.finished AND i.payload IS NOT NULL THEN '' ELSE i.payload END FROM p WHERE i.id = p.id RETURNING i.id)
SELECT count(*) FROM u`

// Prune implements ledger.Store.
func (s *Store) Prune(ctx context.Context, kind string, before time.Time, limit int) (n int, err error) {
	from := s.prunes.from(kind)
	if from.After(before) { // the clock was set back
		from = time.Time{}
	}
	upto := before
	err = s.run(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		n, upto = 0, before
		o := &own{ctx: ctx, s: s, pipe: pipe{conn, s.described}}
		var ids []int64
		var last time.Time
		found := 0
		err := o.query(pruneFind, []any{kind, from, before, limit}, func(scan scanner) error {
			var id int64
			var locked bool
			err := scan(&id, &last, &locked)
			if found++; locked {
				ids = append(ids, id)
			}
			return err
		})
		if err == nil && len(ids) > 0 {
			err = o.later(prune, []any{ids, before}, func(scan scanner) error { return scan(&n) })
		}
		if err != nil {
			o.rollback()
			return uncommitted(err)
		}
		if found == limit {
			upto = last
		}
		return o.commit()
	})
	if err == nil {
		s.prunes.reached(kind, from, upto.UTC())
	}
	return n, err
}

// Audit implements ledger.Store.
func (s *Store) Audit(ctx context.Context, after int64, limit int) ([]ledger.Audited, error) {
	var out []ledger.Audited
	err := s.run(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		out = nil
		record, attempt := records(), attemptRows()
		next := 0 // of out, for the attempts, which come in the same order
		statements := []statement{
			{sql: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"},
			{s.render(`SELECT ` + recordColumns + ` FROM ` + recordTables + ` WHERE i.id > $1 ORDER BY i.id LIMIT $2`), []any{after, limit}, func(scan scanner) error {
				r, err := record(scan)
				out = append(out, ledger.Audited{Record: r})
				return err
			}},
			{s.render(`SELECT ` + attemptColumns + ` FROM (SELECT id FROM {{S}}.ledger_items WHERE id > $1 ORDER BY id LIMIT $2) i
 JOIN {{S}}.ledger_attempts a ON a.item_id = i.id ORDER BY a.item_id, a.attempt`), []any{after, limit}, func(scan scanner) error {
				a, err := attempt(scan)
				for next < len(out) && out[next].ID != a.ItemID {
					next++
				}
				if err == nil && next < len(out) {
					out[next].Attempts = append(out[next].Attempts, a)
				}
				return err
			}},
			{s.render(`SELECT h.item_id, h.resource FROM (SELECT id FROM {{S}}.ledger_items WHERE id > $1 ORDER BY id LIMIT $2) i
 JOIN {{S}}.ledger_held h ON h.item_id = i.id ORDER BY h.resource`), []any{after, limit}, func(scan scanner) error {
				var id int64
				var name string
				err := scan(&id, &name)
				if i, known := slices.BinarySearchFunc(out, id, func(a ledger.Audited, id int64) int { return cmp.Compare(a.ID, id) }); known {
					out[i].Held = append(out[i].Held, name)
				}
				return err
			}},
			{sql: commit},
		}
		o := &own{ctx: ctx, s: s, pipe: pipe{conn, s.described}, waiting: statements, begun: true}
		err := o.flush()
		if err != nil {
			o.rollback()
		}
		return uncommitted(err)
	})
	return out, err
}

// Orphans implements ledger.Store.
func (s *Store) Orphans(ctx context.Context, limit int) (o ledger.Orphans, err error) {
	id := func(scan scanner) (id int64, err error) {
		err = scan(&id)
		return id, err
	}
	for _, c := range []struct {
		ids  *[]int64
		rows string
	}{
		{&o.Backlog, `{{S}}.ledger_backlog t WHERE NOT EXISTS (SELECT FROM {{S}}.ledger_items i WHERE i.id = t.item_id)`},
		{&o.Attempts, `{{S}}.ledger_attempts t WHERE NOT EXISTS (SELECT FROM {{S}}.ledger_items i WHERE i.id = t.item_id)`},
		{&o.Held, `{{S}}.ledger_held t WHERE NOT EXISTS (SELECT FROM {{S}}.ledger_backlog b WHERE b.item_id = t.item_id AND b.lock_id = t.lock_id)`},
		{&o.Beyond, beyondLimits},
		{&o.Misfiled, `(SELECT b.item_id FROM {{S}}.ledger_backlog b JOIN {{S}}.ledger_items i ON i.id = b.item_id JOIN {{S}}.ledger_kinds k ON k.kind = b.kind
 WHERE b.limit_key IS NOT NULL AND (NOT k.laned OR b.limit_key NOT IN ('', coalesce(i.shard_key, i.key)))) t`},
	} {
		if *c.ids, err = collect(ctx, s, `SELECT DISTINCT t.item_id FROM `+c.rows+` LIMIT $1`, []any{limit}, id); err != nil {
			return o, err
		}
	}
	return o, nil
}

// beyondLimits is what is leased beyond the limits of its kind, the newest of what was leased since they are what they are.
const beyondLimits = `(SELECT item_id, limits::json AS limits, row_number() OVER (PARTITION BY kind ORDER BY leased_at, item_id) AS of_kind,
  row_number() OVER (PARTITION BY kind, shard_key ORDER BY leased_at, item_id) AS of_key
 FROM (SELECT b.item_id, b.kind, b.leased_at, k.limits, coalesce(i.shard_key, i.key) AS shard_key
  FROM {{S}}.ledger_backlog b JOIN {{S}}.ledger_kinds k ON k.kind = b.kind JOIN {{S}}.ledger_items i ON i.id = b.item_id
  WHERE b.lock_id IS NOT NULL AND b.limit_key IS NOT NULL AND b.gate = 1 AND k.limits <> '') l) t
 WHERE t.of_kind > (t.limits->>'max_running')::int OR t.of_key > (t.limits->>'max_running_per_shard_key')::int`
