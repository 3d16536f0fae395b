package sqlite

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/code"
	"github.com/ledgerd/ledgerd/ledger/internal/sqlstore"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// Items of kinds with limits. A ready item is filed when its column limit_key is set: the key under which limits count
// it. A filed row is not in the index from which unlimited kinds are claimed. Each claim of a kind with limits first
// files the items that became ready since the last claim. So no other call has to know of limits: adding, Retry and
// Promote do not file. After a change of limits, claims file the rows again, a part at a time. See
// scheduler.Limits.Admit for the rule.

// filed is the most rows that one claim files.
const filed = 1000

const (
	shardKeyOf = `(SELECT coalesce(i.shard_key, i.key) FROM ledger_items i WHERE i.id = ledger_backlog.item_id)`
	// strays are ready and not filed; misfiled are filed under limits that have changed since.
	byReady  = `SELECT item_id FROM ledger_backlog INDEXED BY ledger_backlog_ready`
	strays   = byReady + ` WHERE state = ` + code.Ready + ` AND gate = ` + code.Free + ` AND kind = ?1 ORDER BY priority, due_at, item_id`
	byLanes  = `SELECT item_id FROM ledger_backlog INDEXED BY ledger_backlog_lanes`
	misfiled = byLanes + ` WHERE limit_key IS NOT NULL AND lock_id IS NULL AND kind = ?1`
	keyless  = misfiled + ` AND limit_key = ''`
	keyed    = misfiled + ` AND limit_key > ''`
	// byItems replaces byReady and byLanes in a claim that names the items in the list ?3.
	byItems = `SELECT item_id FROM json_each(?3) CROSS JOIN ledger_backlog NOT INDEXED ON item_id = value`

	// nextLane reads the first lane of kind ?1 behind the key ?2, and counts at most ?3 leases of it.
	nextLane = `SELECT f.limit_key, (SELECT count(*) FROM (SELECT 1 FROM ledger_backlog INDEXED BY ledger_backlog_running
  WHERE limit_key IS NOT NULL AND lock_id IS NOT NULL AND kind = ?1 AND limit_key = f.limit_key LIMIT ?3)),
 (SELECT next_at FROM ledger_lanes WHERE kind = ?1 AND limit_key = f.limit_key), f.slot
 FROM (SELECT limit_key, slot FROM ledger_backlog INDEXED BY ledger_backlog_lanes WHERE limit_key IS NOT NULL AND lock_id IS NULL AND kind = ?1 AND limit_key > ?2
  ORDER BY limit_key LIMIT 1) f`
	// passLanes is nextLane that goes on from key to key, past the keys of other shards than ?3 of ?4 and past those that
	// the scheduler.Pass in ?5 … ?8 names. n counts the steps, passed the keys of the shard that it passed over. ?9 is
	// the most leases to count. Behind the last lane the key is ''.
	passLanes = `WITH RECURSIVE k(n, key, mine, next_at, passed, earliest) AS (
 SELECT 0, ?2, 0, NULL, 0, NULL
 UNION ALL
 SELECT k.n + 1, b.limit_key, b.slot % ?4 = ?3, l.next_at, k.passed + k.mine, CASE WHEN k.mine THEN min(k.next_at, coalesce(k.earliest, k.next_at)) ELSE k.earliest END
 FROM k LEFT JOIN ledger_backlog b ON b.item_id = (SELECT item_id FROM ledger_backlog INDEXED BY ledger_backlog_lanes
  WHERE limit_key IS NOT NULL AND lock_id IS NULL AND kind = ?1 AND limit_key > k.key ORDER BY limit_key LIMIT 1)
 LEFT JOIN ledger_lanes l ON l.kind = ?1 AND l.limit_key = b.limit_key
 WHERE NOT k.mine OR k.next_at > ?5 AND k.next_at <= ?6 AND (?7 = '' OR k.key <= ?7) AND k.passed + 1 < ?8)
SELECT coalesce(key, ''), (SELECT count(*) FROM (SELECT 1 FROM ledger_backlog INDEXED BY ledger_backlog_running
  WHERE limit_key IS NOT NULL AND lock_id IS NOT NULL AND kind = ?1 AND limit_key = key LIMIT ?9)), next_at, passed, earliest
 FROM (SELECT max(n), key, next_at, passed, earliest FROM k)`
	readyLane = `SELECT b.item_id, b.priority, b.due_at, b.alone FROM ledger_backlog b INDEXED BY ledger_backlog_lanes WHERE b.limit_key IS NOT NULL AND b.lock_id IS NULL AND b.kind = ?1 AND b.limit_key = ?2
 AND b.slot % ?4 = ?3 ORDER BY b.priority, b.due_at, b.item_id LIMIT ?5`
	wholeLane = `SELECT (SELECT count(*) FROM (SELECT 1 FROM ledger_backlog INDEXED BY ledger_backlog_running WHERE limit_key IS NOT NULL AND lock_id IS NOT NULL AND kind = ?1 LIMIT ?2)),
 (SELECT next_at FROM ledger_lanes WHERE kind = ?1 AND limit_key = '')`
)

// isLaned reports whether a kind has or had limits.
func isLaned(s session, kind string) (bool, error) {
	return exists(s, `SELECT 1 FROM ledger_kinds WHERE kind = ?1 AND laned = 1`, kind)
}

// someLaned reports whether a claim of a kind that has or had limits may find an item, and if not, what its limits hold
// back.
func (s *Store) someLaned(r session, g ledger.Grant) (some bool, held ledger.Claimed, err error) {
	k, err := sqlstore.Kind(s.sharedSession(r), g.Kind)
	if err != nil || k.Paused {
		return false, held, err
	}
	wrong := misfiled
	if k.Limits.Any() {
		held.Limited, wrong = true, keyed
		if k.Limits.ByKey() {
			wrong = keyless
		}
	}
	if some, err = exists(r, wrong, g.Kind); err != nil || some || !held.Limited {
		return some, held, err
	}
	a, next, err := s.admit(r, g, k, 1, s.clock())
	if err != nil {
		return false, held, err
	}
	if some = len(a.Granted) > 0 || len(a.Moved) > 0; !some { // there may be more keys than one claim reads
		s.cursors.Set(g, next)
	}
	held.More, held.HeldBack = a.More && !some, a.HeldBack
	return some, held, nil
}

// claimLaned claims items of a kind that has or had limits.
func (s *Store) claimLaned(t *turn, g ledger.Grant) (got ledger.Claimed, err error) {
	k, err := sqlstore.Kind(s.sharedSession(t), g.Kind)
	if err != nil {
		return got, err
	}
	limited := k.Limits.Any()
	n, room := int64(0), 1
	if err := s.sweepLanes(t); err != nil {
		return got, err
	}
	if !k.Paused {
		if n, err = fileReady(t, k, g.Items); err != nil {
			return got, err
		}
	}
	if limited {
		got, room, err = s.claimLimited(t, g, k)
	} else {
		got.Records, err = claim(t, g)
	}
	got.More = got.More || n == filed && room > 0 && len(g.Items) == 0
	return got, err
}

// sweepLanes removes, at intervals, the lanes of all kinds whose rates hold nothing back any more.
func (s *Store) sweepLanes(t *turn) error {
	if !s.laneSweeps.Due(t.now) {
		return nil
	}
	start := time.Now()
	_, err := t.exec(`DELETE FROM ledger_lanes WHERE next_at <= ?1`, t.now)
	s.laneSweeps.Took(t.now, time.Since(start))
	return err
}

// fileReady files rows that a claim has to see: up to filed of them, and those that the claim names. It returns how
// many of the former.
func fileReady(t *turn, k ledger.Kind, items []int64) (n int64, err error) {
	set := func(to, which string) {
		var r result
		if err == nil {
			r, err = t.exec(`UPDATE ledger_backlog SET `+to+` WHERE item_id IN (`+which+` LIMIT ?2)`, k.Name, filed)
			n = max(n, r.changes)
		}
		if err == nil && len(items) > 0 {
			which = strings.NewReplacer(byReady, byItems, byLanes, byItems).Replace(which)
			_, err = t.exec(`UPDATE ledger_backlog SET `+to+` WHERE item_id IN (`+which+` LIMIT ?2)`, k.Name, len(items),
				array(items))
		}
	}
	switch {
	case !k.Limits.Any():
		set(`gate = `+code.Free+`, limit_key = NULL`, misfiled)
	case k.Limits.ByKey():
		set(`gate = `+code.Filed+`, limit_key = `+shardKeyOf, strays)
		set(`limit_key = `+shardKeyOf, keyless)
	default:
		set(`gate = `+code.Filed+`, limit_key = ''`, strays)
		set(`limit_key = ''`, keyed)
	}
	return n, err
}

// claimLimited claims filed items of a kind with limits. room is how many more items the limits allow.
func (s *Store) claimLimited(t *turn, g ledger.Grant, k ledger.Kind) (got ledger.Claimed, room int, err error) {
	got.Limited = true
	if g.Resume {
		if got.Records, err = resume(t, g, t.now.Add(g.TTL)); err != nil {
			return got, 0, err
		}
	}
	if k.Paused {
		return got, 0, nil
	}
	a, next, err := s.admit(t, g, k, g.Limit-len(got.Records), t.now)
	if err != nil {
		return got, 0, err
	}
	got.More, got.HeldBack = a.More, a.HeldBack
	err = moveLanes.exec(t, len(a.Moved), func(list []any, i int) []any {
		return append(list, g.Kind, a.Moved[i].Key, a.Moved[i].Next)
	})
	if err != nil {
		return got, 0, err
	}
	if err := stamp(t, g, a.Granted); err != nil {
		return got, 0, err
	}
	slices.Sort(a.Granted)
	fresh, err := load(t, a.Granted)
	slices.SortFunc(fresh, sqlstore.CompareClaimed)
	got.Records = append(got.Records, fresh...)
	s.cursors.Set(g, next)
	return got, a.Room(), err
}

// stamp leases items.
func stamp(t *turn, g ledger.Grant, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := t.exec(`UPDATE ledger_backlog SET state = `+code.Leased+
		`, attempt = max(attempt, ?6) + 1, locked_by = ?2, lock_id = ?3, leased_at = ?4, expires_at = ?5
 WHERE item_id IN (SELECT value FROM json_each(?1))`, array(ids), g.Agent, g.LockID, t.now, t.now.Add(g.TTL), g.Floor)
	return err
}

var moveLanes = newBulk(`INSERT INTO ledger_lanes (kind, limit_key, next_at)`, 3,
	` ON CONFLICT (kind, limit_key) DO UPDATE SET next_at = excluded.next_at`)

// admit finds the filed items that a claim of a kind with limits may lease.
func (s *Store) admit(in session, g ledger.Grant, k ledger.Kind, limit int, now time.Time) (*scheduler.Admission,
	scheduler.Cursor, error) {
	var whole scheduler.Lane
	err := in.query(wholeLane, func(r row) error {
		whole.Running, whole.Next = int(r.int(0)), r.time(1)
		return nil
	}, g.Kind, k.Limits.MaxRunning)
	if err != nil {
		return nil, scheduler.Cursor{}, err
	}
	a := k.Limits.Admit(now, whole, limit)
	var among scheduler.Lanes = lanes{in, g, k.Limits.MaxRunningPerShardKey}
	if len(g.Items) > 0 {
		if among, err = sqlstore.NamedLanes(sharedSession{in, now}, g, k.Limits); err != nil {
			return nil, scheduler.Cursor{}, err
		}
	}
	next, err := a.Walk(s.cursors.Of(g), among)
	a.More = a.More && len(g.Items) == 0
	return a, next, err
}

// lanes implements scheduler.Lanes for a claim.
type lanes struct {
	in   session
	g    ledger.Grant
	most int // the most leases of a shard key that have to be counted
}

// Next implements scheduler.Lanes. Reading one lane is cheaper than the statement that skips lanes.
func (l lanes) Next(after string, p scheduler.Pass) (lane scheduler.Lane, passed scheduler.Passed, some bool,
	err error) {
	index, count := shard(l.g)
	mine := false
	err = l.in.query(nextLane, func(r row) error {
		lane = scheduler.Lane{Key: r.text(0), Running: int(r.int(1)), Next: r.time(2)}
		mine = l.g.Shard.Covers(int(r.int(3)))
		return nil
	}, l.g.Kind, after, l.most)
	if err == nil && lane.Key != "" && (!mine || p.Over(lane, passed)) {
		err = l.in.query(passLanes, func(r row) error {
			lane = scheduler.Lane{Key: r.text(0), Running: int(r.int(1)), Next: r.time(2)}
			passed = scheduler.Passed{Lanes: int(r.int(3)), Next: r.time(4)}
			return nil
		}, l.g.Kind, after, index, count, p.After, p.Until, p.End, p.Look, l.most)
	}
	return lane, passed, lane.Key != "", err
}

// Ready implements scheduler.Lanes.
func (l lanes) Ready(key string, n int) (out []scheduler.Candidate, err error) {
	index, count := shard(l.g)
	err = l.in.query(readyLane, func(r row) error {
		out = append(out, scheduler.Candidate{ID: r.int(0), Priority: int16(r.int(1)), Due: r.time(2), Alone: r.bool(3)})
		return nil
	}, l.g.Kind, key, index, count, n)
	return out, err
}

// countLeased counts the items that are leased now under the new limits of a kind.
func (x *tx) countLeased(k ledger.Kind) error {
	key := `''`
	if k.Limits.ByKey() {
		key = shardKeyOf
	}
	_, err := x.session.exec(`UPDATE ledger_backlog SET gate = `+code.LeasedBefore+`, limit_key = `+key+` WHERE state = `+
		code.Leased+` AND kind = ?1`, k.Name)
	return err
}

// Ahead implements ledger.Store.
func (s *Store) Ahead(ctx context.Context, r *ledger.Record, limit int) (n int64, err error) {
	laned := false
	err = s.read(ctx, false, func(ss session) (err error) {
		laned, err = isLaned(ss, r.Kind)
		return err
	})
	if err != nil {
		return 0, err
	}
	return sqlstore.Ahead(ctx, s.shared, r, laned, limit)
}
