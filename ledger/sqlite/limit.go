package sqlite

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// Items of kinds with limits. A claim of such a kind first files what has become ready since the one
// before: limit_key says under which limits a row is counted, and it leaves the index of what is
// claimed freely. So nothing else has to know of limits: what is added, retried or promoted is not
// filed, and after a change of limits claims file anew what lies there, piece by piece. See
// ledger.Kind.Admit for the rule.

// filed is how many rows a claim files at most.
const filed = 1000

const (
	shardKeyOf = `(SELECT coalesce(i.shard_key, i.key) FROM ledger_items i WHERE i.id = ledger_backlog.item_id)`
	// strays are ready and not filed; misfiled is what is filed as limits demanded that were others.
	strays   = `SELECT item_id FROM ledger_backlog INDEXED BY ledger_backlog_ready WHERE state = 1 AND gate = 0 AND kind = ?1 ORDER BY priority, due_at, item_id`
	misfiled = `SELECT item_id FROM ledger_backlog INDEXED BY ledger_backlog_lanes WHERE limit_key IS NOT NULL AND lock_id IS NULL AND kind = ?1`
	keyless  = misfiled + ` AND limit_key = ''`
	keyed    = misfiled + ` AND limit_key > ''`

	nextLane = `SELECT f.limit_key, (SELECT count(*) FROM (SELECT 1 FROM ledger_backlog INDEXED BY ledger_backlog_running
  WHERE limit_key IS NOT NULL AND lock_id IS NOT NULL AND kind = ?1 AND limit_key = f.limit_key LIMIT ?3)),
 (SELECT next_at FROM ledger_lanes WHERE kind = ?1 AND limit_key = f.limit_key), f.slot
 FROM (SELECT limit_key, slot FROM ledger_backlog INDEXED BY ledger_backlog_lanes WHERE limit_key IS NOT NULL AND lock_id IS NULL AND kind = ?1 AND limit_key > ?2
  ORDER BY limit_key LIMIT 1) f`
	// passLanes is the same behind lanes to be passed over. It goes from key to key, n steps from ?2, past
	// those of shards other than ?3 of ?4 and those that ?5 … ?8, the ledger.Pass, say. Behind the last
	// there is a row without a key.
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
	readyLane = candidateOf + ` FROM ledger_backlog b INDEXED BY ledger_backlog_lanes WHERE b.limit_key IS NOT NULL AND b.lock_id IS NULL AND b.kind = ?1 AND b.limit_key = ?2
 AND b.slot % ?4 = ?3 ORDER BY b.priority, b.due_at, b.item_id LIMIT ?5`
	wholeLane = `SELECT (SELECT count(*) FROM (SELECT 1 FROM ledger_backlog INDEXED BY ledger_backlog_running WHERE limit_key IS NOT NULL AND lock_id IS NOT NULL AND kind = ?1 LIMIT ?2)),
 (SELECT next_at FROM ledger_lanes WHERE kind = ?1 AND limit_key = '')`
)

// gatesOf says of a kind whether it has items that need resources and is not paused, and whether it has
// or had limits.
func gatesOf(s session, kind string) (gated, laned bool, err error) {
	err = s.query(`SELECT gated = 1 AND paused = 0, laned FROM ledger_kinds WHERE kind = ?1`, func(r row) error {
		gated, laned = r.bool(0), r.bool(1)
		return nil
	}, kind)
	return gated, laned, err
}

// turns say whose turn it is among the shard keys of a kind and shard.
type turns map[backlogPart]ledger.Turn

type backlogPart struct {
	kind  string
	shard ledger.Shard
}

func (s *Store) turnOf(g ledger.Grant) ledger.Turn {
	s.turnsMu.Lock()
	defer s.turnsMu.Unlock()
	return s.turns[backlogPart{g.Kind, g.Shard}]
}

func (s *Store) setTurn(g ledger.Grant, next ledger.Turn) {
	s.turnsMu.Lock()
	defer s.turnsMu.Unlock()
	if s.turns == nil {
		s.turns = turns{}
	}
	s.turns[backlogPart{g.Kind, g.Shard}] = next
}

// someLaned says whether a claim of a kind that has or had limits may find something, and if not, what
// its limits hold back.
func (s *Store) someLaned(r session, g ledger.Grant) (some bool, held ledger.Claimed, err error) {
	k, err := kind(r, g.Kind)
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
	if some = len(a.Granted) > 0 || len(a.Moved) > 0; !some { // there may be more keys than one claim looks at
		s.setTurn(g, next)
	}
	held.More, held.HeldBack = a.More && !some, a.HeldBack
	return some, held, nil
}

// claimLaned claims of a kind that has or had limits. If it leased nothing, more says whether there is
// more to look at.
func (s *Store) claimLaned(t *turn, g ledger.Grant, gated bool) (got ledger.Claimed, more bool, err error) {
	k, err := kind(t, g.Kind)
	if err != nil {
		return got, false, err
	}
	limited := k.Limits.Any()
	n, room := int64(0), 1
	if err := s.sweepLanes(t); err != nil {
		return got, false, err
	}
	if !k.Paused {
		if n, err = fileReady(t, k); err != nil {
			return got, false, err
		}
	}
	switch {
	case limited:
		got, room, err = s.claimLimited(t, g, k)
	case gated:
		got.Records, more, err = s.claimGated(t, g)
	default:
		got.Records, err = claim(t, g)
	}
	return got, more || n == filed && room > 0, err
}

// sweepLanes forgets now and then what rates have not been used lately, of all kinds.
func (s *Store) sweepLanes(t *turn) error {
	if !s.laneSweeps.due(t.now) {
		return nil
	}
	start := time.Now()
	_, err := t.exec(`DELETE FROM ledger_lanes WHERE next_at <= ?1`, t.now)
	s.laneSweeps.took(t.now, time.Since(start))
	return err
}

// fileReady files what a claim is to come upon, and says how many rows.
func fileReady(t *turn, k ledger.Kind) (n int64, err error) {
	set := func(to, which string) {
		if err != nil {
			return
		}
		var r result
		r, err = t.exec(`UPDATE ledger_backlog SET `+to+` WHERE item_id IN (`+which+` LIMIT ?2)`, k.Name, filed)
		n = max(n, r.changes)
	}
	switch {
	case !k.Limits.Any():
		set(`gate = 0, limit_key = NULL`, misfiled)
	case k.Limits.ByKey():
		set(`gate = 1, limit_key = `+shardKeyOf, strays)
		set(`limit_key = `+shardKeyOf, keyless)
	default:
		set(`gate = 1, limit_key = ''`, strays)
		set(`limit_key = ''`, keyed)
	}
	return n, err
}

// claimLimited claims of a kind with limits, of what is filed; room is how much more might be leased.
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
	err = moveLanes.exec(t, len(a.Moved), func(list []any, i int) []any { return append(list, g.Kind, a.Moved[i].Key, a.Moved[i].Next) })
	if err != nil {
		return got, 0, err
	}
	if err := s.stamp(t, g, a.Granted); err != nil {
		return got, 0, err
	}
	slices.Sort(a.Granted)
	fresh, err := load(t, a.Granted)
	slices.SortFunc(fresh, compareClaimed)
	got.Records = append(got.Records, fresh...)
	s.setTurn(g, next)
	return got, a.Room(), err
}

func compareClaimed(a, b ledger.Record) int {
	return cmp.Or(cmp.Compare(a.Work.Priority, b.Work.Priority), a.Work.Due.Compare(b.Work.Due), cmp.Compare(a.ID, b.ID))
}

var moveLanes = newBulk(`INSERT INTO ledger_lanes (kind, limit_key, next_at)`, 3, ` ON CONFLICT (kind, limit_key) DO UPDATE SET next_at = excluded.next_at`)

// admit says what a claim of a kind with limits may lease, of what is filed.
func (s *Store) admit(in session, g ledger.Grant, k ledger.Kind, limit int, now time.Time) (*ledger.Admission, ledger.Turn, error) {
	var whole ledger.Lane
	err := in.query(wholeLane, func(r row) error {
		whole.Running, whole.Next = int(r.int(0)), r.time(1)
		return nil
	}, g.Kind, k.Limits.MaxRunning)
	if err != nil {
		return nil, ledger.Turn{}, err
	}
	a := k.Admit(now, whole, limit)
	next, err := a.Walk(s.turnOf(g), lanes{in, g, k.Limits.MaxRunningPerShardKey})
	return a, next, err
}

// lanes are the ledger.Lanes of a claim.
type lanes struct {
	in   session
	g    ledger.Grant
	most int // leased for a shard key
}

// Next implements ledger.Lanes. The statement that passes over lanes costs more than one step.
func (l lanes) Next(after string, p ledger.Pass) (lane ledger.Lane, passed ledger.Passed, some bool, err error) {
	index, count := shard(l.g)
	mine := false
	err = l.in.query(nextLane, func(r row) error {
		lane = ledger.Lane{Key: r.text(0), Running: int(r.int(1)), Next: r.time(2)}
		mine = int(r.int(3))%count == index
		return nil
	}, l.g.Kind, after, l.most)
	if err == nil && lane.Key != "" && (!mine || p.Over(lane, passed)) {
		err = l.in.query(passLanes, func(r row) error {
			lane = ledger.Lane{Key: r.text(0), Running: int(r.int(1)), Next: r.time(2)}
			passed = ledger.Passed{Lanes: int(r.int(3)), Next: r.time(4)}
			return nil
		}, l.g.Kind, after, index, count, p.After, p.Until, p.End, p.Look, l.most)
	}
	return lane, passed, lane.Key != "", err
}

// Ready implements ledger.Lanes.
func (l lanes) Ready(key string, n int) (out []ledger.Candidate, err error) {
	index, count := shard(l.g)
	err = l.in.query(readyLane, func(r row) error {
		out = append(out, scanCandidate(r))
		return nil
	}, l.g.Kind, key, index, count, n)
	return out, err
}

// countLeased counts what is leased of a kind under its limits from now on, as leased under others.
func (x *tx) countLeased(k ledger.Kind) error {
	key := `''`
	if k.Limits.ByKey() {
		key = shardKeyOf
	}
	_, err := x.session.exec(`UPDATE ledger_backlog SET gate = 0, limit_key = `+key+` WHERE state = 2 AND kind = ?1`, k.Name)
	return err
}

// jsonLimits are limits as a column keeps them.
func jsonLimits(l ledger.Limits) (string, error) {
	if l == (ledger.Limits{}) {
		return "", nil
	}
	b, err := json.Marshal(l)
	return string(b), err
}

// Gate implements ledger.Tx.
func (x *tx) Gate(kinds []string) (limited []string, err error) {
	if err := x.begin(); err != nil {
		return nil, err
	}
	_, err = x.session.exec(`UPDATE ledger_kinds SET gated = 1 WHERE gated = 0 AND limits = '' AND kind IN (SELECT value FROM json_each(?1))`, jsonNames(kinds))
	if err != nil {
		return nil, err
	}
	err = x.session.query(`SELECT kind FROM ledger_kinds WHERE limits <> '' AND kind IN (SELECT value FROM json_each(?1)) ORDER BY kind`, func(r row) error {
		limited = append(limited, r.text(0))
		return nil
	}, jsonNames(kinds))
	return limited, err
}

// Gated implements ledger.Tx.
func (x *tx) Gated(kind string) (bool, error) {
	if err := x.begin(); err != nil {
		return false, err
	}
	return exists(x.session, `SELECT 1 FROM ledger_kinds WHERE kind = ?1 AND gated = 1`, kind)
}

// Crowding implements ledger.Store.
func (s *Store) Crowding(ctx context.Context, kind, key string) (c ledger.Crowding, err error) {
	c.Whole.Key, c.Key.Key = "", key
	err = s.read(ctx, true, func(r session) error {
		c.Now = s.clock()
		return r.query(`SELECT (SELECT count(*) FROM ledger_backlog INDEXED BY ledger_backlog_running WHERE limit_key IS NOT NULL AND lock_id IS NOT NULL AND kind = ?1), (SELECT next_at FROM ledger_lanes WHERE kind = ?1 AND limit_key = ''),
 (SELECT count(*) FROM ledger_backlog INDEXED BY ledger_backlog_running WHERE limit_key IS NOT NULL AND lock_id IS NOT NULL AND kind = ?1 AND limit_key = ?2), (SELECT next_at FROM ledger_lanes WHERE kind = ?1 AND limit_key = ?2)`, func(r row) error {
			c.Whole.Running, c.Whole.Next, c.Key.Running, c.Key.Next = int(r.int(0)), r.time(1), int(r.int(2)), r.time(3)
			return nil
		}, kind, key)
	})
	return c, err
}

// ahead is Ahead of a kind that has limits, or had. What is filed as other limits demanded counts as well,
// since a claim files it anew.
func (s *Store) ahead(ctx context.Context, r *ledger.Record, limit int) (n int64, err error) {
	key := ""
	if r.Policy.Limits.ByKey() {
		key = cmp.Or(r.ShardKey, r.Key)
	}
	const filed = `(SELECT count(*) FROM (SELECT 1 FROM ledger_backlog INDEXED BY ledger_backlog_lanes
 WHERE limit_key IS NOT NULL AND lock_id IS NULL AND kind = ?1 AND (priority, due_at, item_id) < (?2, ?3, ?4) AND `
	err = s.read(ctx, false, func(ss session) error {
		return ss.query(`SELECT min(?6, (SELECT count(*) FROM (SELECT 1 FROM ledger_backlog INDEXED BY ledger_backlog_ready
 WHERE state = 1 AND gate = 0 AND kind = ?1 AND (priority, due_at, item_id) < (?2, ?3, ?4) AND (?5 = '' OR `+shardKeyOf+` = ?5) LIMIT ?6)) +
 `+filed+`limit_key = ?5 LIMIT ?6)) +
 `+filed+`?5 = '' AND limit_key > '' LIMIT ?6)) +
 `+filed+`?5 <> '' AND limit_key = '' AND `+shardKeyOf+` = ?5 LIMIT ?6)))`, func(r row) error {
			n = r.int(0)
			return nil
		}, r.Kind, r.Work.Priority, r.Work.Due, r.ID, key, limit)
	})
	return n, err
}
