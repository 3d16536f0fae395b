package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/ledger"
)

// What time makes due: expired leases and waiting items. Both are searched from a position.

// expiredTemplate locks rows that have expired by the transaction's clock, which is also when their
// attempts are said to have ended, and reads their records. The columns of the backlog come
// from the locked rows: what the snapshot shows of them may be older.
const expiredTemplate = `WITH b AS MATERIALIZED (
 SELECT * FROM {{S}}.ledger_backlog WHERE state = 2 AND expires_at >= $2 AND expires_at <= (SELECT coalesce($3::timestamptz, now()))
 ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED)
SELECT ` + recordColumns + `, ` + kindColumns + ` FROM b JOIN {{S}}.ledger_items i ON i.id = b.item_id JOIN {{S}}.ledger_kinds k ON k.kind = i.kind ` + lastAttempt + `
ORDER BY b.expires_at, i.id`

// leasedTemplate is expiredTemplate for what one agent had leased by the transaction's clock.
const leasedTemplate = `WITH b AS MATERIALIZED (
 SELECT * FROM {{S}}.ledger_backlog WHERE state = 2 AND locked_by = $2 AND leased_at <= (SELECT coalesce($3::timestamptz, now()))
 ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED)
SELECT ` + recordColumns + `, ` + kindColumns + ` FROM b JOIN {{S}}.ledger_items i ON i.id = b.item_id JOIN {{S}}.ledger_kinds k ON k.kind = i.kind ` + lastAttempt + `
ORDER BY b.expires_at, i.id`

// LoadLeased implements ledger.Tx.
func (t *tx) LoadLeased(agent string, limit int) ([]ledger.Record, error) {
	return t.records(leasedTemplate, []any{limit, agent, t.stamp()})
}

// EndBeat implements ledger.Tx.
func (t *tx) EndBeat(agent, process string) (same bool, err error) {
	err = t.query(`UPDATE {{S}}.ledger_agents SET expires_at = least(expires_at, {{NOW}}) WHERE agent = $1 AND process = $2 RETURNING true`,
		[]any{agent, process}, func(scan scanner) error { return scan(&same) })
	return same, err
}

// LoadExpired implements ledger.Tx.
func (t *tx) LoadExpired(limit int) ([]ledger.Record, error) {
	p := &t.s.positions
	p.mu.Lock()
	w := p.leased.begin(time.Now())
	p.mu.Unlock()
	recs, err := t.records(expiredTemplate, []any{limit, w.from.at, t.stamp()})
	t.ends = append(t.ends, func(committed bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case !committed:
			w.leave()
		case len(recs) < limit:
			w.reached(place{at: t.now.Add(-margin)}, true, time.Now())
		default:
			w.reached(place{at: recs[limit-1].Work.ExpiresAt}, false, time.Now())
		}
	})
	return recs, err
}

// promoteTemplate: $1 limit, $2 kinds and $3 their positions. Kind by kind, as the index is.
const promoteTemplate = `WITH picked AS MATERIALIZED (
 SELECT x.item_id FROM {{S}}.ledger_kinds k LEFT JOIN unnest($2::text[], $3::timestamptz[]) p(kind, due) ON p.kind = k.kind
 CROSS JOIN LATERAL (
  SELECT item_id FROM {{S}}.ledger_backlog b
  WHERE b.state = 0 AND b.kind = k.kind AND b.due_at >= coalesce(p.due, '-infinity') AND b.due_at <= (SELECT {{NOW}})
  ORDER BY b.due_at, b.item_id LIMIT $1 FOR UPDATE SKIP LOCKED) x
 LIMIT $1),
u AS (UPDATE {{S}}.ledger_backlog SET state = 1 WHERE item_id = ANY(ARRAY(SELECT item_id FROM picked)) RETURNING kind, priority, due_at)
SELECT kind, priority, count(*), min(due_at), max(due_at) FROM u GROUP BY kind, priority`

// nextTemplate reads the earliest of what waits, of each kind, and the time.
const nextTemplate = `SELECT k.kind, {{NOW}}, (
 SELECT b.due_at FROM {{S}}.ledger_backlog b WHERE b.state = 0 AND b.kind = k.kind AND b.due_at >= coalesce(p.due, '-infinity') ORDER BY b.due_at, b.item_id LIMIT 1)
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
		m = promotion{walks: s.positions.promotions(), ready: marks{}, last: map[string]time.Time{}}
		err := m.run(&own{ctx: ctx, s: s, pipe: pipe{conn, s.described}}, limit)
		if err != nil {
			s.positions.abandoned(m.walks)
		}
		return err
	})
	if err != nil {
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

// promoted ends the walks of a promotion; all says that it found all there was.
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

func (p *positions) abandoned(walks map[string]*walk) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range walks {
		w.leave()
	}
}
