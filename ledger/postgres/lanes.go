package postgres

import (
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// lanesRead is the most items that a statement reads, about: it reads fewer shard keys if it reads more items of each.
const lanesRead = 500

const (
	// readLanes goes from shard key to shard key in their index: $1 kind, $2 the key to begin behind, $3 how many keys
	// to read, $4 the most leases of a key (0: any number), $5 how many items of a key to read, $6 the number of shards,
	// $7 the claim's shard; $8 … $11 are the scheduler.Pass. It passes over keys of other shards and keys that the Pass
	// names. Each row tells how many keys of the claim's shard were passed over since the row before. The last row has
	// no key.
	readLanes = `WITH RECURSIVE k(key, slot, next_at, mine, over, looked, n, passed, earliest) AS (
 SELECT $2::text COLLATE "C", 0::smallint, NULL::timestamptz, false, true, 0, 0, 0, NULL::timestamptz
 UNION ALL
 SELECT x.limit_key, x.slot, l.next_at, m.mine, o.over, k.looked + m.mine::int, k.n + (NOT o.over)::int,
  CASE WHEN k.over THEN k.passed + k.mine::int ELSE 0 END, CASE WHEN k.over THEN least(k.earliest, k.next_at) END
 FROM k
 LEFT JOIN LATERAL (SELECT limit_key, slot FROM {{S}}.ledger_backlog WHERE ` + filedRows + ` AND kind = $1 AND limit_key > k.key
  ORDER BY limit_key, priority, due_at, item_id LIMIT 1) x ON true
 CROSS JOIN LATERAL (SELECT x.slot % $6::int = $7::int AS mine) m
 LEFT JOIN LATERAL (SELECT next_at FROM {{S}}.ledger_lanes WHERE kind = $1 AND limit_key = x.limit_key AND m.mine LIMIT 1) l ON true
 CROSS JOIN LATERAL (SELECT NOT m.mine OR coalesce(l.next_at > $8::timestamptz AND l.next_at <= $9::timestamptz, false)
  AND ($10::text = '' OR x.limit_key <= $10::text) AND k.looked + 1 < $11::int AS over) o
 WHERE k.key IS NOT NULL AND k.n < $3::int AND k.looked < $11::int AND (k.over OR $10::text = '' OR k.key <= $10::text))
SELECT coalesce(k.key, ''), k.passed, k.earliest, r.n, k.next_at, c.item_id, c.priority, c.due_at, c.alone
FROM k
CROSS JOIN LATERAL (SELECT count(*) AS n FROM (
 SELECT FROM {{S}}.ledger_backlog WHERE ` + runningRows + ` AND kind = $1 AND limit_key = k.key LIMIT (SELECT $4::int)) y) r
LEFT JOIN LATERAL (
 SELECT item_id, priority, due_at, alone FROM {{S}}.ledger_backlog WHERE ` + filedRows + ` AND kind = $1 AND limit_key = k.key
 ORDER BY priority, due_at, item_id LIMIT CASE WHEN $4::int > 0 THEN least($5::int, $4::int - r.n) ELSE $5::int END) c ON true
WHERE k.over IS NOT TRUE
ORDER BY k.key, c.priority, c.due_at, c.item_id`

	// readReady reads ready items of a kind whose limits are not by shard key: $1 kind, $2 how many.
	readReady = `SELECT item_id, priority, due_at, alone FROM {{S}}.ledger_backlog WHERE ` + filedRows + ` AND kind = $1 AND limit_key = ''{{SHARD}}
 ORDER BY priority, due_at, item_id LIMIT (SELECT $2::int)`
)

// readLane is a lane that a statement read. The last lane of a kind has no key.
type readLane struct {
	scheduler.Lane
	passed scheduler.Passed // between the lane before and this one
	ready  []scheduler.Candidate
}

// Next implements scheduler.Lanes.
func (c *limitedClaim) Next(after string, p scheduler.Pass) (scheduler.Lane, scheduler.Passed, bool, error) {
	switch {
	case after == "": // the walk begins, or begins anew at the first key
		c.read = nil
	case len(c.read) > 0:
		c.read = c.read[1:]
	}
	if len(c.read) == 0 {
		if err := c.readLanes(after, p); err != nil {
			return scheduler.Lane{}, scheduler.Passed{}, false, err
		}
	}
	l := c.read[0]
	return l.Lane, l.passed, l.Key != "", nil
}

// readLanes reads lanes behind a key.
func (c *limitedClaim) readLanes(after string, p scheduler.Pass) error {
	limits := c.policy.Limits
	most := c.g.Limit
	if limits.MaxRunningPerShardKey > 0 {
		most = min(most, limits.MaxRunningPerShardKey)
	}
	if limits.RatePerShardKey.Count > 0 {
		most = min(most, max(limits.Burst, 1))
	}
	// Twice the room is enough if most keys have an item to grant. While they have none, each statement reads four times
	// as many as the one before.
	c.lanes = min(max(4*c.lanes, 2*c.admission.Room(), 10), max(lanesRead/max(most, 1), 10))
	args := []any{c.g.Kind, after, c.lanes, limits.MaxRunningPerShardKey, most, max(c.g.Shard.Count, 1), c.g.Shard.Index,
		p.After, p.Until, p.End, p.Look}
	return c.query(readLanes, args, func(scan scanner) error {
		var l readLane
		var earliest, next, due *time.Time
		var id *int64
		var priority *int16
		var alone *bool
		if err := scan(&l.Key, &l.passed.Lanes, &earliest, &l.Running, &next, &id, &priority, &due, &alone); err != nil {
			return err
		}
		if n := len(c.read); n == 0 || c.read[n-1].Key != l.Key {
			l.passed.Next, l.Next = utc(earliest), utc(next)
			c.read = append(c.read, l)
		}
		if id != nil {
			lane := &c.read[len(c.read)-1]
			lane.ready = append(lane.ready, scheduler.Candidate{ID: *id, Priority: *priority, Due: utc(due), Alone: *alone})
		}
		return nil
	})
}

// Ready implements scheduler.Lanes.
func (c *limitedClaim) Ready(key string, n int) ([]scheduler.Candidate, error) {
	if key != "" {
		ready := c.read[0].ready
		return ready[:min(n, len(ready))], nil
	}
	template, args := strings.Replace(readReady, "{{SHARD}}", "", 1), []any{c.g.Kind, n}
	if s := c.g.Shard; s.Count > 0 {
		template, args = strings.Replace(readReady, "{{SHARD}}", inShard("$3", "$4"), 1), append(args, s.Count, s.Index)
	}
	var ready []scheduler.Candidate
	err := c.query(template, args, func(scan scanner) error {
		var r scheduler.Candidate
		err := scan(&r.ID, &r.Priority, &r.Due, &r.Alone)
		r.Due = r.Due.UTC()
		ready = append(ready, r)
		return err
	})
	return ready, err
}
