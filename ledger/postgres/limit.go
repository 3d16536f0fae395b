package postgres

import (
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

// This file claims items of kinds with limits. A claim of such a kind first files the rows that have become ready since
// the claim before: it sets limit_key, the limit under which a row is counted, and the row leaves the index of rows
// without limits. So only claims have to know of limits: rows that are added, retried or promoted are not filed. After
// a change of the limits, claims file the rows again, a part at a time. See scheduler.Limits.Admit for the rule.
//
// One claim of such a kind runs at a time, under an advisory lock. It counts in statements after the one that took the
// lock, because the snapshot of that statement may be older than the claim before. It waits for nothing else. A change
// of the limits takes the lock, too.

// filed is the most rows that one statement of a claim files.
const filed = 1000

// limitLock is the lock of claims of a kind with limits.
func (s *Store) limitLock(kind string) int64 { return lockKey("limits", s.schema, kind) }

// laneKeeper holds what a process remembers of kinds with limits.
type laneKeeper struct {
	cursors sqlstore.Cursors

	mu    sync.Mutex
	kinds map[string]*laneCare
}

// laneCare is when a process last tended a kind that has or had limits: counted leases that an earlier count missed,
// and deleted lanes that hold nothing back.
type laneCare struct {
	limits scheduler.Limits // of the kind at that time
	sqlstore.Pace
}

// due reports whether a kind with these limits is to be tended.
func (k *laneKeeper) due(kind string, limits scheduler.Limits, now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.kinds[kind]
	return c == nil || c.limits != limits || c.Due(now)
}

// forget makes the next claim read the limits of a kind, since this process has changed them. A change by another
// process is noticed at the next time of the kind's Pace.
func (k *laneKeeper) forget(kind string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.kinds, kind)
}

// free reports whether a kind that had limits had none a moment ago, and none of its rows was filed any more.
func (k *laneKeeper) free(kind string, now time.Time) bool {
	k.mu.Lock()
	c := k.kinds[kind]
	k.mu.Unlock()
	return c != nil && !c.limits.Any() && !k.due(kind, scheduler.Limits{}, now)
}

// done records that a kind was tended.
func (k *laneKeeper) done(kind string, limits scheduler.Limits, now time.Time, took time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kinds == nil {
		k.kinds = map[string]*laneCare{}
	}
	if !limits.Any() { // until the kind is due, claims overlook limits that another process sets: see free
		took = min(took, wholeMost/wholeShare)
	}
	c := &laneCare{limits: limits, Pace: sqlstore.Pace{Every: sqlstore.SweepEvery}}
	c.Took(now, took)
	k.kinds[kind] = c
}

// lanedKinds remembers which kinds have or had limits. A claim that finds nothing reads that again, at most once a
// second.
type lanedKinds struct {
	mu    sync.Mutex
	kinds map[string]bool
}

// learn records whether a kind has or had limits.
func (k *lanedKinds) learn(kind string, laned bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kinds == nil {
		k.kinds = map[string]bool{}
	}
	k.kinds[kind] = k.kinds[kind] || laned
}

func (k *lanedKinds) known(kind string) (laned, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	laned, known = k.kinds[kind]
	return laned, known
}

// isLaned reports whether a kind has or had limits, as far as this process knows. It asks the database once.
func (s *Store) isLaned(ctx context.Context, kind string) (laned bool, err error) {
	if laned, known := s.laned.known(kind); known {
		return laned, nil
	}
	err = s.lookUp(ctx, func(ss session) error {
		return ss.query(`SELECT laned FROM {{S}}.ledger_kinds WHERE kind = $1`, []any{kind}, func(scan scanner) error {
			return scan(&laned)
		})
	})
	if err == nil {
		s.laned.learn(kind, laned)
	}
	return laned, err
}

// wall is the clock of this process, or that of a test.
func (s *Store) wall() time.Time {
	if s.clock != nil {
		return s.clock()
	}
	return time.Now()
}

const (
	shardKeyOf = `(SELECT coalesce(i.shard_key, i.key) FROM {{S}}.ledger_items i WHERE i.id = b.item_id)`

	// strays are ready rows that are not filed; misfiled are rows that were filed under earlier limits.
	strays     = `SELECT item_id FROM {{S}}.ledger_backlog WHERE ` + isStray + ` ORDER BY priority, due_at, item_id`
	isStray    = isReady + ` AND gate = ` + code.Free + ` AND kind = $1`
	misfiled   = `SELECT item_id FROM {{S}}.ledger_backlog WHERE ` + isMisfiled + ` ORDER BY limit_key, priority, due_at, item_id`
	isMisfiled = filedRows + ` AND kind = $1{{WRONG}}`
	// amongItems are the rows of the items $3 for which a condition holds. coalesce hides it from the planner, so that
	// the rows are found by their ids, and not by an index of all rows for which it holds.
	amongItems = `SELECT item_id FROM {{S}}.ledger_backlog WHERE item_id = ANY((SELECT $3::bigint[])::bigint[]) AND coalesce({{IT}}, false) ORDER BY item_id`

	fileTemplate = `WITH f AS (UPDATE {{S}}.ledger_backlog b SET {{SET}} WHERE item_id = ANY(ARRAY({{WHICH}} LIMIT (SELECT $2::int) FOR UPDATE SKIP LOCKED)) RETURNING 1)
SELECT count(*) FROM f`

	// countLeased makes leased rows of a kind count under its limits, marked as leased before these were set.
	countLeased = `UPDATE {{S}}.ledger_backlog b SET gate = ` + code.LeasedBefore +
		`, limit_key = {{KEY}}, running = true WHERE item_id = ANY(ARRAY(
 SELECT x.item_id FROM {{S}}.ledger_leases l CROSS JOIN LATERAL unnest(l.items) h(id) CROSS JOIN LATERAL (
  SELECT item_id FROM {{S}}.ledger_backlog WHERE item_id = h.id AND lock_id = l.lock_id{{WRONG}} FOR UPDATE SKIP LOCKED) x
 WHERE l.kind = $1))`

	// readWhole reads the lane of the whole kind: how many items are leased, at most $2, and when the next may begin.
	readWhole = `SELECT (SELECT count(*) FROM (SELECT FROM {{S}}.ledger_backlog WHERE ` + runningRows + ` AND kind = $1 LIMIT (SELECT $2::int)) r),
 (SELECT next_at FROM {{S}}.ledger_lanes WHERE kind = $1 AND limit_key = '')`

	// stampLimited leases granted items that are still ready: $1 ids, $2 agent, $3 lock_id, $4 now, $5 ttl, $6 kind,
	// $7 floor. An item that is not ready any more has nevertheless used up its place in the rate.
	stampLimited = `WITH c AS (
 UPDATE {{S}}.ledger_backlog SET attempt = greatest(attempt, $7::bigint) + 1, lock_id = $3, running = true
 WHERE item_id = ANY(ARRAY(SELECT item_id FROM {{S}}.ledger_backlog WHERE item_id` + listed + ` AND gate = ` + code.Filed + ` AND lock_id IS NULL ORDER BY item_id FOR UPDATE SKIP LOCKED))
 RETURNING ` + leasedReturning + `),
` + leaseOfRows + `
SELECT $4::timestamptz, ` + leasedColumns + `,
 i.id, ` + itemColumns + ` FROM c JOIN {{S}}.ledger_items i ON i.id = c.item_id`

	moveLanes = `INSERT INTO {{S}}.ledger_lanes (kind, limit_key, next_at) SELECT $1, limit_key, next_at FROM unnest($2::text[], $3::timestamptz[]) u(limit_key, next_at)
 ON CONFLICT (kind, limit_key) DO UPDATE SET next_at = excluded.next_at`
)

// ownSettings are the settings of the transaction of a claim under limits. If a process freezes between two round
// trips, the timeout lets other processes go on. All statements over rows must use the order of an index: with
// statistics from before there were limits, the planner believes that one row has a limit_key, and would sort the whole
// table for each key. Switching plans off adds a huge cost that would trigger JIT, so JIT is off, too.
const ownSettings = `SELECT set_config('idle_in_transaction_session_timeout', '10s', true), set_config('enable_sort', 'off', true),
 set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true)`

// filing returns the statements that file the ready rows of a kind, or unfile them if it has no limits. With named,
// they do so with the items that a claim names.
func filing(l scheduler.Limits, named bool) []string {
	file := func(set, which, condition, wrong string) string {
		if named {
			which = strings.Replace(amongItems, "{{IT}}", condition, 1)
		}
		which = strings.Replace(which, "{{WRONG}}", wrong, 1)
		return strings.NewReplacer("{{SET}}", set, "{{WHICH}}", which).Replace(fileTemplate)
	}
	switch {
	case !l.Any():
		return []string{file(`gate = `+code.Free+`, limit_key = NULL`, misfiled, isMisfiled, ``)}
	case l.ByKey():
		return []string{file(`gate = `+code.Filed+`, limit_key = `+shardKeyOf, strays, isStray, ``),
			file(`limit_key = `+shardKeyOf, misfiled, isMisfiled, ` AND limit_key = ''`)}
	}
	return []string{file(`gate = `+code.Filed+`, limit_key = ''`, strays, isStray, ``),
		file(`limit_key = ''`, misfiled, isMisfiled, ` AND limit_key > ''`)}
}

// counting returns countLeased for all leased rows of a kind, or for those that do not count under these limits yet:
// they were locked, or just being claimed, when the limits were set.
func counting(l scheduler.Limits, all bool) string {
	key, wrong := `''`, ` AND (limit_key IS NULL OR limit_key > '')`
	if l.ByKey() {
		key, wrong = shardKeyOf, ` AND (limit_key IS NULL OR limit_key = '')`
	}
	if all {
		wrong = ``
	}
	return strings.NewReplacer("{{KEY}}", key, "{{WRONG}}", wrong).Replace(countLeased)
}

// claimLaned claims items of a kind that has or had limits. If it has none now, got.Limited is false, and claimLaned
// has leased nothing: it has only unfiled rows, so that the ordinary claim finds them.
func (s *Store) claimLaned(ctx context.Context, g ledger.Grant) (got ledger.Claimed, err error) {
	if len(g.Items) == 0 && s.lanes.free(g.Kind, s.wall()) {
		return got, nil
	}
	err = s.run(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		c := &limitedClaim{claim: blankClaim(g), own: newOwn(ctx, s, conn)}
		more, err := c.run()
		if err != nil {
			c.rollback()
			return err
		}
		got = ledger.Claimed{Limited: c.policy.Limits.Any(), More: more}
		if c.admission != nil {
			got.More, got.HeldBack = more || c.admission.More, c.admission.HeldBack
		}
		got.More = got.More && len(g.Items) == 0
		c.addHistory(ctx, s, conn)
		got.Records = append(c.held, c.records()...)
		return nil
	})
	return got, err
}

// limitedClaim is one run of a claim of a kind that has or had limits.
type limitedClaim struct {
	*claim
	*own
	now       time.Time // of the database
	policy    ledger.Kind
	filed     int // rows that one statement filed, the most of all
	held      []ledger.Record
	whole     scheduler.Lane // of the whole kind
	admission *scheduler.Admission
	read      []readLane // the lane that Next returned last, and those that it will return
	lanes     int        // how many the newest statement was to read
	tended    func()     // records that it tended the kind, after the commit; nil: it did not
}

// run claims and commits. more reports whether another claim may find items, if this one leased nothing.
func (c *limitedClaim) run() (more bool, err error) {
	if more, err = c.choose(); err != nil {
		return false, uncommitted(err)
	}
	if err = c.commit(); err == nil && c.tended != nil {
		c.tended()
	}
	return more, err
}

// choose files rows, chooses what the limits admit, and leaves the writes of the leases to the commit.
func (c *limitedClaim) choose() (more bool, err error) {
	if err := c.begin(); err != nil || c.policy.Name == "" || c.policy.Paused {
		return false, err
	}
	limits := c.policy.Limits
	start, now := time.Now(), c.s.wall()
	tend := c.s.lanes.due(c.g.Kind, limits, now)
	if err := c.file(tend); err != nil {
		return false, err
	}
	if took := time.Since(start); tend && (limits.Any() || c.filed == 0) {
		c.tended = func() { c.s.lanes.done(c.g.Kind, limits, now, took) }
	}
	if !limits.Any() {
		return c.filed == filed, nil
	}
	c.admission = limits.Admit(c.now, c.whole, c.g.Limit-len(c.held))
	var among scheduler.Lanes = c
	if len(c.g.Items) > 0 {
		var err error
		if among, err = sqlstore.NamedLanes(sharedSession{c.own}, c.g, limits); err != nil {
			return false, err
		}
	}
	next, err := c.admission.Walk(c.s.lanes.cursors.Of(c.g), among)
	if err != nil {
		return false, err
	}
	c.s.lanes.cursors.Set(c.g, next)
	return c.filed == filed && c.admission.Room() > 0, c.book()
}

// begin takes the lock and reads the policy and the time, and what the agent holds already.
func (c *limitedClaim) begin() error {
	g := c.g
	statements := []statement{{ownSettings, nil, nil}}
	if g.Resume {
		row := records()
		statements = append(statements,
			statement{"SELECT pg_advisory_xact_lock($1)", []any{lockKey("agent", c.s.schema, g.Agent)}, nil},
			resuming(g, func(scan scanner) error {
				r, err := row.record(scan)
				c.held = append(c.held, r)
				return err
			}))
	}
	var policy sqlstore.PolicyRow
	statements = append(statements,
		statement{"SELECT pg_advisory_xact_lock($1)", []any{c.s.limitLock(g.Kind)}, nil},
		statement{`SELECT ` + sqlstore.PolicyColumns + `, {{NOW}} FROM {{S}}.ledger_kinds k WHERE k.kind = $1`, []any{g.Kind},
			func(scan scanner) (err error) {
				if err = scan(append(policy.Dest(), &c.now)...); err == nil {
					c.policy, err = policy.Kind()
				}
				c.now = c.now.UTC()
				return err
			}})
	for _, st := range statements {
		if err := c.later(st.sql, st.args, st.row); err != nil {
			return err
		}
	}
	return c.flush()
}

// file files ready rows, tends the kind if tend is true, and reads its lane as a whole.
func (c *limitedClaim) file(tend bool) error {
	limits := c.policy.Limits
	for _, template := range filing(limits, false) {
		err := c.later(template, []any{c.g.Kind, filed}, func(scan scanner) error {
			n := 0
			err := scan(&n)
			c.filed = max(c.filed, n)
			return err
		})
		if err != nil {
			return err
		}
	}
	if len(c.g.Items) > 0 {
		for _, template := range filing(limits, true) {
			if err := c.later(template, []any{c.g.Kind, len(c.g.Items), c.g.Items}, nil); err != nil {
				return err
			}
		}
	}
	if tend && limits.Any() {
		if err := c.later(counting(limits, false), []any{c.g.Kind}, nil); err != nil {
			return err
		}
	}
	if tend {
		const forget = `DELETE FROM {{S}}.ledger_lanes WHERE kind = $1 AND next_at <= (SELECT {{NOW}})`
		if err := c.later(forget, []any{c.g.Kind}, nil); err != nil {
			return err
		}
	}
	err := c.later(readWhole, []any{c.g.Kind, limits.MaxRunning}, func(scan scanner) error {
		var next *time.Time
		err := scan(&c.whole.Running, &next)
		c.whole.Next = utc(next)
		return err
	})
	if err != nil {
		return err
	}
	return c.flush()
}

// book writes leases of what was granted, and the rates that this used up, with the commit.
func (c *limitedClaim) book() error {
	if len(c.admission.Granted) > 0 {
		c.dest = c.dest[1:] // stampLimited does not return the number of picked rows
		ids := slices.Sorted(slices.Values(c.admission.Granted))
		if err := c.later(stampLimited, []any{ids, c.g.Agent, pgUUID(c.g.LockID), c.now, c.g.TTL, c.g.Kind, c.g.Floor},
			c.row); err != nil {
			return err
		}
	}
	if len(c.admission.Moved) == 0 {
		return nil
	}
	keys, next := make([]string, len(c.admission.Moved)), make([]time.Time, len(c.admission.Moved))
	for i, l := range c.admission.Moved {
		keys[i], next[i] = l.Key, l.Next
	}
	return c.later(moveLanes, []any{c.g.Kind, keys, next}, nil)
}

// Ahead implements ledger.Store.
func (s *Store) Ahead(ctx context.Context, r *ledger.Record, limit int) (n int64, err error) {
	laned, err := s.isLaned(ctx, r.Kind)
	if err != nil {
		return 0, err
	}
	// The record may have got its policy after isLaned asked.
	return sqlstore.Ahead(ctx, s.shared, r, laned || r.Policy.Limits.Any(), limit)
}
