package postgres

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/code"
	"github.com/ledgerd/ledgerd/ledger/internal/sqlstore"
)

// Time makes two things due: expired leases and waiting items. Both are searched from a position.

// Conditions of leases: those due from the time $2 on, those of the agent $2, and all. $3 is the transaction's clock.
const (
	atNow       = ` <= (SELECT coalesce($3::timestamptz, now()))`
	dueLeases   = `l.due_at >= $2 AND l.due_at` + atNow
	agentLeases = `l.agent = $2 AND l.leased_at` + atNow
	everyLease  = `$2::text = '' AND coalesce($3::timestamptz, now()) IS NOT NULL`
)

// firstLeases locks leases, the earliest due first, until they list $1 + 1000 items: some of these have ended since.
const firstLeases = `x AS MATERIALIZED (
 SELECT l.* FROM {{S}}.ledger_leases l WHERE {{LEASES}} ORDER BY l.due_at LIMIT $1 FOR UPDATE SKIP LOCKED),
l AS MATERIALIZED (
 SELECT * FROM (SELECT x.*, sum(cardinality(items)) OVER (ORDER BY due_at, lock_id) - cardinality(items) AS before FROM x) x
 WHERE before < $1 + 1000)`

// tendTemplate deletes leases whose items have all ended, and makes the others due when the first of their items
// expires. It marks these as split, so that no renewal includes an item that is about to be taken. It returns how many
// leases there were, how many are due, and whether there may be more behind them.
const tendTemplate = `WITH ` + firstLeases + `,
f AS MATERIALIZED (
 SELECT l.lock_id, (SELECT min(coalesce(b.expires_at, l.expires_at)) FROM (SELECT l.items, l.lock_id, l.expires_at) l` + heldRows + `) AS first FROM l),
d AS (DELETE FROM {{S}}.ledger_leases WHERE lock_id = ANY(ARRAY(SELECT lock_id FROM f WHERE first IS NULL))),
u AS (
 UPDATE {{S}}.ledger_leases g SET split = true, due_at = (SELECT f.first FROM f WHERE f.lock_id = g.lock_id)
 WHERE g.lock_id = ANY(ARRAY(SELECT lock_id FROM f WHERE first IS NOT NULL)))
SELECT count(*), count(*) FILTER (WHERE {{STILL}}), (SELECT count(*) FROM x) > least(count(*), $1 - 1) FROM f`

// takenTemplate locks items that leases hold, the first to expire first, and reads their records. A record is read from
// the locked rows, since the snapshot may show an older state. The row of an item is locked before its row of the
// backlog, as everywhere, because the rules may write both. Locked items are skipped. So are leases that are not split,
// because tendTemplate has not seen them yet: a renewal of the whole lease could include what is taken from it.
const takenTemplate = `WITH ` + firstLeases + `,
h AS MATERIALIZED (
 SELECT b.item_id, l.* FROM l` + heldRows + ` WHERE l.split{{EXPIRED}} ORDER BY coalesce(b.expires_at, l.expires_at), b.item_id),
b AS MATERIALIZED (
 SELECT x.* FROM h l CROSS JOIN LATERAL (
  SELECT i FROM {{S}}.ledger_items i WHERE i.id = l.item_id FOR NO KEY UPDATE SKIP LOCKED) i CROSS JOIN LATERAL (
  SELECT i.i, ` + workOf + `, b.kind FROM {{S}}.ledger_backlog b WHERE b.item_id = (i.i).id AND b.lock_id = l.lock_id{{EXPIRED}} FOR UPDATE SKIP LOCKED) x
 LIMIT $1)
SELECT ` + recordColumns + `, ` + sqlstore.PolicyColumns + ` FROM b CROSS JOIN LATERAL (SELECT (b.i).*) i JOIN {{S}}.ledger_kinds k ON k.kind = i.kind ` + lastAttempt + `
ORDER BY b.expires_at, i.id`

// taking are the two statements that take items from leases, made of tendTemplate and takenTemplate.
type taking struct{ tend, take string }

func takingFrom(leases, expired, still string) taking {
	fill := strings.NewReplacer("{{LEASES}}", leases, "{{EXPIRED}}", expired, "{{STILL}}", still)
	return taking{fill.Replace(tendTemplate), fill.Replace(takenTemplate)}
}

var ( // by the transaction's clock, as are the ends of the attempts
	takeExpired = takingFrom(dueLeases, ` AND coalesce(b.expires_at, l.expires_at)`+atNow, `first`+atNow)
	takeLeased  = takingFrom(agentLeases, ``, `first IS NOT NULL`)
	takeAll     = takingFrom(everyLease, ``, `first IS NOT NULL`)
)

// take takes up to limit items from leases. start is $2 of the statements: a time or an agent. more reports that there
// may be leases behind these: leases may list many items and hold few.
func (t *tx) take(statements taking, limit int, start any) (recs []ledger.Record, more bool, err error) {
	args := []any{limit, start, t.stamp()}
	for {
		var leases, due int
		err = t.later(statements.tend, args, func(scan scanner) error { return scan(&leases, &due, &more) })
		if err != nil {
			return nil, false, err
		}
		recs, err = t.records(statements.take, args)
		// If the first leases had no item that is due, later leases may have some.
		if err != nil || len(recs) == limit || !more || due == leases {
			return recs, more, err
		}
	}
}

// LoadLeased implements ledger.Tx.
func (t *tx) LoadLeased(agent string, limit int) ([]ledger.Record, error) {
	statements := takeLeased
	if agent == "" {
		statements = takeAll
	}
	recs, _, err := t.take(statements, limit, agent)
	return recs, err
}

// sweepTemplate deletes leases whose items are all gone, a few at a time.
const sweepTemplate = `DELETE FROM {{S}}.ledger_leases WHERE lock_id = ANY(ARRAY(
 SELECT l.lock_id FROM {{S}}.ledger_leases l
 WHERE (SELECT b.item_id FROM (SELECT l.items, l.lock_id) l` + heldRows + ` LIMIT 1) IS NULL LIMIT (SELECT $1::int) FOR UPDATE SKIP LOCKED))`

// swept is the most leases that one sweep deletes.
const swept = 5000

// LoadExpired implements ledger.Tx.
func (t *tx) LoadExpired(limit int) ([]ledger.Record, error) {
	if now := t.s.wall(); t.s.leaseSweeps.Due(now) {
		start := time.Now()
		if err := t.query(sweepTemplate, []any{swept}, nil); err != nil {
			return nil, err
		}
		t.s.leaseSweeps.Took(now, time.Since(start))
	}
	p := &t.s.positions
	p.mu.Lock()
	w := p.leased.begin(time.Now())
	p.mu.Unlock()
	recs, more, err := t.take(takeExpired, limit, w.from.at)
	t.ends = append(t.ends, func(committed bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case !committed, more && len(recs) == 0:
			w.leave()
		case len(recs) < limit && !more:
			w.reached(place{at: t.now.Add(-margin)}, true, time.Now())
		default:
			w.reached(place{at: recs[0].Work.ExpiresAt}, false, time.Now())
		}
	})
	return recs, err
}

// promoteTemplate makes waiting items ready that are due, kind by kind in the order of the index, the longest overdue
// kind first: $1 limit, $2 kinds, $3 their positions.
const promoteTemplate = `WITH overdue AS MATERIALIZED (
 SELECT k.kind, f.due_at FROM {{S}}.ledger_kinds k LEFT JOIN unnest($2::text[], $3::timestamptz[]) p(kind, due) ON p.kind = k.kind
 CROSS JOIN LATERAL (
  SELECT b.due_at FROM {{S}}.ledger_backlog b
  WHERE b.stage = ` + code.Waiting + ` AND b.kind = k.kind AND b.due_at >= coalesce(p.due, '-infinity') AND b.due_at <= (SELECT {{NOW}})
  ORDER BY b.due_at, b.item_id LIMIT 1) f
 ORDER BY f.due_at, k.kind),
picked AS MATERIALIZED (
 SELECT x.item_id FROM overdue k CROSS JOIN LATERAL (
  SELECT item_id FROM {{S}}.ledger_backlog b
  WHERE b.stage = ` + code.Waiting + ` AND b.kind = k.kind AND b.due_at >= k.due_at AND b.due_at <= (SELECT {{NOW}})
  ORDER BY b.due_at, b.item_id LIMIT $1 FOR UPDATE SKIP LOCKED) x
 LIMIT $1),
u AS (UPDATE {{S}}.ledger_backlog SET stage = ` + code.Ready + ` WHERE item_id = ANY(ARRAY(SELECT item_id FROM picked)) RETURNING kind, priority, due_at)
SELECT kind, priority, count(*), min(due_at), max(due_at) FROM u GROUP BY kind, priority`

// nextTemplate reads the earliest of what waits, of each kind, and the time.
const nextTemplate = `SELECT k.kind, {{NOW}}, (
 SELECT b.due_at FROM {{S}}.ledger_backlog b WHERE b.stage = ` + code.Waiting + ` AND b.kind = k.kind AND b.due_at >= coalesce(p.due, '-infinity') ORDER BY b.due_at, b.item_id LIMIT 1)
FROM {{S}}.ledger_kinds k LEFT JOIN unnest($1::text[], $2::timestamptz[]) p(kind, due) ON p.kind = k.kind`

// promotion is one run of Promote.
type promotion struct {
	walks map[string]*walk // by kind
	ready marks
	last  map[string]time.Time // due time of the last row promoted, by kind
	count int
	next  time.Time
	now   time.Time
	seen  []string // all kinds
}

// Promote implements ledger.Store.
func (s *Store) Promote(ctx context.Context, limit int) (kinds []string, next time.Time, err error) {
	var m promotion
	err = s.run(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		s.positions.abandoned(m.walks)
		m = promotion{walks: s.positions.promotions(), ready: marks{}, last: map[string]time.Time{}}
		return m.run(newOwn(ctx, s, conn), limit)
	})
	if err != nil {
		s.positions.abandoned(m.walks)
		return nil, time.Time{}, err
	}
	s.positions.promoted(&m, m.count < limit)
	s.positions.lower(m.ready, nil, nil)
	for k := range m.last {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	return kinds, m.next, nil
}

func (m *promotion) run(o *own, limit int) error {
	var kinds []string
	var from []time.Time
	for k, w := range m.walks {
		kinds, from = append(kinds, k), append(from, w.from.at)
	}
	if err := o.later(promoteTemplate, []any{limit, kinds, from}, m.promoted); err != nil {
		return err
	}
	if err := o.later(nextTemplate, []any{kinds, from}, m.waits); err != nil {
		return err
	}
	return o.commit()
}

// promoted reads a row of promoteTemplate.
func (m *promotion) promoted(scan scanner) error {
	var kind string
	var priority int16
	var n int
	var first, last time.Time
	if err := scan(&kind, &priority, &n, &first, &last); err != nil {
		return err
	}
	m.count += n
	m.ready.add(kind, priority, first.UTC())
	if have, ok := m.last[kind]; !ok || last.After(have) {
		m.last[kind] = last.UTC()
	}
	return nil
}

// waits reads a row of nextTemplate.
func (m *promotion) waits(scan scanner) error {
	var kind string
	var due *time.Time
	if err := scan(&kind, &m.now, &due); err != nil {
		return err
	}
	m.seen = append(m.seen, kind)
	if due != nil && (m.next.IsZero() || due.Before(m.next)) {
		m.next = due.UTC()
	}
	return nil
}

// promotions begins the walks of a promotion, one for each kind that is known here.
func (p *positions) promotions() map[string]*walk {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	walks := map[string]*walk{}
	for kind, f := range p.waiting {
		walks[kind] = f.begin(now)
	}
	return walks
}

// promoted ends the walks of a promotion. all means that it found all that was due.
func (p *positions) promoted(m *promotion, all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for kind, w := range m.walks {
		last, some := m.last[kind]
		switch {
		case all:
			w.reached(place{at: m.now.Add(-margin)}, true, now)
		case some:
			w.reached(place{at: last}, false, now)
		default:
			w.leave()
		}
	}
	if p.waiting == nil {
		p.waiting = map[string]*frontier{}
	}
	for _, kind := range m.seen {
		if p.waiting[kind] == nil {
			p.waiting[kind] = &frontier{}
		}
	}
}

// abandoned ends the walks of a promotion that failed.
func (p *positions) abandoned(walks map[string]*walk) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range walks {
		w.leave()
	}
}
