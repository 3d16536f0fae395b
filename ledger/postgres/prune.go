package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/ledger/internal/code"
)

// pruneWhole is how often a process looks for items to prune among all that ended, and not only among those that ended
// since its last look.
const pruneWhole = 24 * time.Hour

// prunes remembers, by kind, up to when a process has pruned.
type prunes struct {
	mu     sync.Mutex
	byKind map[string]pruned
}

type pruned struct {
	upto  time.Time // all items that ended before were pruned
	whole time.Time // when it last looked among all that ended
}

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

// forget makes the next look one among all that ended: an item that recurs from now on may have attempts to prune that
// were kept before.
func (p *prunes) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.byKind)
}

// pruneFind finds and locks items to prune: finished items that have something to remove, and recurring items with
// attempts before the one that is kept. Of a finished item that is the newest attempt; of a recurring one it is the
// newest completion before the end of the span of time, or else the newest final attempt before it. This attempt must
// have ended in the span. The search for a later one mostly ends at the next row. It skips locked rows. It walks the
// index of final attempts and stops at the limit. The planner believes that the conditions are so rare that a walk
// would not reach the limit; OFFSET and coalesce keep it from joining whole tables instead. $1 kind, $2 and $3 the span
// of time, $4 limit.
const pruneFind = `WITH picked AS MATERIALIZED (
 SELECT i.id, f.finished_at FROM {{S}}.ledger_attempts f
 CROSS JOIN LATERAL (SELECT i.id, i.every, i.payload FROM {{S}}.ledger_items i WHERE i.id = f.item_id OFFSET 0) i
 WHERE f.final AND f.kind = $1 AND f.finished_at >= $2 AND f.finished_at < $3 AND coalesce(
  NOT EXISTS (SELECT FROM {{S}}.ledger_attempts n WHERE n.item_id = f.item_id AND n.attempt > f.attempt AND n.final
   AND (i.every IS NULL OR n.finished_at < $3 AND (n.outcome IN ` + code.Completed + ` OR f.outcome NOT IN ` + code.Completed + `)))
  AND (i.every IS NULL OR f.outcome IN ` + code.Completed + ` OR NOT EXISTS (
   SELECT FROM {{S}}.ledger_attempts n WHERE n.item_id = f.item_id AND n.attempt < f.attempt AND n.final AND n.outcome IN ` + code.Completed + `))
  AND (EXISTS (SELECT FROM {{S}}.ledger_attempts e WHERE e.item_id = f.item_id AND e.attempt < f.attempt)
   OR i.every IS NULL AND num_nonnulls(nullif(i.payload, ''), f.output, f.log, f.error) > 0)
  AND (i.every IS NOT NULL OR (SELECT b.item_id FROM {{S}}.ledger_backlog b WHERE b.item_id = i.id) IS NULL), false)
 ORDER BY f.finished_at LIMIT $4),
locked AS MATERIALIZED (
 SELECT id FROM {{S}}.ledger_items WHERE id = ANY(ARRAY(SELECT id FROM picked)) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)
SELECT id, finished_at, id IN (SELECT id FROM locked) FROM picked ORDER BY finished_at`

// pruneKeeps selects the attempt n that an item i is pruned up to, before $2; see pruneFind.
const pruneKeeps = `FROM {{S}}.ledger_attempts n WHERE n.item_id = i.id AND n.final AND (i.every IS NULL OR n.finished_at < $2)
 ORDER BY i.every IS NOT NULL AND n.outcome IN ` + code.Completed + ` DESC, n.attempt DESC LIMIT 1`

// prune prunes locked items that still may be pruned.
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
	err = s.runIn(ctx, s.pool, func(ctx context.Context, conn *pgx.Conn) error {
		n, upto = 0, before
		o := newOwn(ctx, s, conn)
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
