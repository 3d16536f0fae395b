package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/ledger"
)

// Items of kinds with limits. A claim of such a kind first files what has become ready since the one
// before: limit_key says under which limits a row is counted, and it leaves the index of what is
// claimed freely. So nothing else has to know of limits: what is added, retried or promoted is not
// filed, and after a change of limits claims file anew what lies there, piece by piece. See
// ledger.Kind.Admit for the rule.
//
// One claim of such a kind runs at a time, under an advisory lock. What it counts it reads in later
// statements than the one that took the lock: the snapshot of that one may be older than what the
// claim before it leased. It waits for nothing else. Whoever changes the limits takes the lock, too.

// filed is how many rows a claim files at most.
const filed = 1000

// limitLock is the lock of claims of a kind with limits.
func (s *Store) limitLock(kind string) int64 { return lockKey("limits", s.schema, kind) }

// laneKeeper is what a process knows of kinds with limits.
type laneKeeper struct {
	mu    sync.Mutex
	turns map[backlogPart]ledger.Turn // among the shard keys
	kinds map[string]*laneCare
}

// laneCare says when a process is to look after a kind that has or had limits: after sweepEvery, or
// sweepShare times what that took the last time.
type laneCare struct {
	limits ledger.Limits // that it had then
	last   time.Time     // by the process's clock, or that of a test
	rest   time.Duration
}

func (k *laneKeeper) turn(g ledger.Grant) ledger.Turn {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.turns[backlogPart{g.Kind, g.Shard}]
}

func (k *laneKeeper) setTurn(g ledger.Grant, next ledger.Turn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.turns == nil {
		k.turns = map[backlogPart]ledger.Turn{}
	}
	k.turns[backlogPart{g.Kind, g.Shard}] = next
}

// due says whether to look after a kind with these limits.
func (k *laneKeeper) due(kind string, limits ledger.Limits, now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.kinds[kind]
	return c == nil || c.limits != limits || now.Before(c.last) || now.Sub(c.last) >= c.rest
}

// forget has the next claim look what limits a kind has, since this process changed them. What others
// change a claim that came upon no limits sees up to rest later.
func (k *laneKeeper) forget(kind string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.kinds, kind)
}

// free says whether a kind that had limits had none a moment ago, with nothing left to be done.
func (k *laneKeeper) free(kind string, now time.Time) bool {
	k.mu.Lock()
	c := k.kinds[kind]
	k.mu.Unlock()
	return c != nil && !c.limits.Any() && !k.due(kind, ledger.Limits{}, now)
}

func (k *laneKeeper) done(kind string, limits ledger.Limits, now time.Time, took time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kinds == nil {
		k.kinds = map[string]*laneCare{}
	}
	k.kinds[kind] = &laneCare{limits, now, max(sweepEvery, sweepShare*took)}
}

const (
	shardKeyOf = `(SELECT coalesce(i.shard_key, i.key) FROM {{S}}.ledger_items i WHERE i.id = b.item_id)`

	// strays are ready and not filed; misfiled is what is filed as limits demanded that were others.
	strays   = `SELECT item_id FROM {{S}}.ledger_backlog WHERE state = 1 AND gate = 0 AND kind = $1 ORDER BY priority, due_at, item_id`
	misfiled = `SELECT item_id FROM {{S}}.ledger_backlog WHERE limit_key IS NOT NULL AND lock_id IS NULL AND kind = $1{{WRONG}} ORDER BY limit_key, priority, due_at, item_id`

	fileTemplate = `WITH f AS (UPDATE {{S}}.ledger_backlog b SET {{SET}} WHERE item_id = ANY(ARRAY({{WHICH}} LIMIT (SELECT $2::int) FOR UPDATE SKIP LOCKED)) RETURNING 1)
SELECT count(*) FROM f`

	// countLeased counts what is leased of a kind under its limits, as leased under others.
	countLeased = `UPDATE {{S}}.ledger_backlog b SET gate = 0, limit_key = {{KEY}} WHERE item_id = ANY(ARRAY(
 SELECT item_id FROM {{S}}.ledger_backlog WHERE state = 2 AND kind = $1{{WRONG}} ORDER BY expires_at FOR UPDATE SKIP LOCKED))`

	readWhole = `SELECT (SELECT count(*) FROM (SELECT FROM {{S}}.ledger_backlog WHERE limit_key IS NOT NULL AND lock_id IS NOT NULL AND kind = $1 LIMIT (SELECT $2::int)) r),
 (SELECT next_at FROM {{S}}.ledger_lanes WHERE kind = $1 AND limit_key = '')`

	// stampLimited leases what was granted and is still there: $1 ids, $2 agent, $3 lock_id, $4 now, $5 ttl.
	// What is not has used up its place in the rate.
	stampLimited = `WITH c AS (
 UPDATE {{S}}.ledger_backlog SET state = 2, attempt = attempt + 1, locked_by = $2, lock_id = $3, leased_at = $4, expires_at = $4::timestamptz + $5::interval
 WHERE item_id = ANY(ARRAY(SELECT item_id FROM {{S}}.ledger_backlog WHERE item_id` + listed + ` AND gate = 1 AND lock_id IS NULL ORDER BY item_id FOR UPDATE SKIP LOCKED))
 RETURNING item_id, priority, due_at, epoch, attempt, failures, crashes, losses, alone, leased_at, expires_at)
SELECT c.priority, c.due_at, c.epoch, c.attempt, c.failures, c.crashes, c.losses, c.alone, c.leased_at, c.expires_at,
 i.id, i.scope, i.key, i.fingerprint, i.payload, coalesce(i.shard_key, ''), i.slot, coalesce(i.every, ''), coalesce(i.zone, ''), coalesce(i.source, ''),
 i.epoch, i.base_attempt, i.created_at FROM c JOIN {{S}}.ledger_items i ON i.id = c.item_id`

	moveLanes = `INSERT INTO {{S}}.ledger_lanes (kind, limit_key, next_at) SELECT $1, limit_key, next_at FROM unnest($2::text[], $3::timestamptz[]) u(limit_key, next_at)
 ON CONFLICT (kind, limit_key) DO UPDATE SET next_at = excluded.next_at`
)

// ownSettings: nobody must wait for long for a process that stands still between the round trips. And
// every statement that goes over rows has the order of an index. On statistics of when there were no
// limits the planner believes that one row has a limit_key, and would rather sort what it finds in the
// whole table, for each key anew. What it must not do it takes for so dear that it would have all
// compiled.
const ownSettings = `SELECT set_config('idle_in_transaction_session_timeout', '10s', true), set_config('enable_sort', 'off', true),
 set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true)`

// filing are the statements that file what is ready of a kind.
func filing(l ledger.Limits) []string {
	file := func(set, which, wrong string) string {
		return strings.NewReplacer("{{SET}}", set, "{{WHICH}}", strings.Replace(which, "{{WRONG}}", wrong, 1)).Replace(fileTemplate)
	}
	switch {
	case !l.Any():
		return []string{file(`gate = 0, limit_key = NULL`, misfiled, ``)}
	case l.ByKey():
		return []string{file(`gate = 1, limit_key = `+shardKeyOf, strays, ``), file(`limit_key = `+shardKeyOf, misfiled, ` AND limit_key = ''`)}
	}
	return []string{file(`gate = 1, limit_key = ''`, strays, ``), file(`limit_key = ''`, misfiled, ` AND limit_key > ''`)}
}

// counting is the statement that counts what is leased of a kind: all of it, or what is not counted
// because it was locked when the limits were set, or claimed then.
func counting(l ledger.Limits, all bool) string {
	key, wrong := `''`, ` AND (limit_key IS NULL OR limit_key > '')`
	if l.ByKey() {
		key, wrong = shardKeyOf, ` AND (limit_key IS NULL OR limit_key = '')`
	}
	if all {
		wrong = ``
	}
	return strings.NewReplacer("{{KEY}}", key, "{{WRONG}}", wrong).Replace(countLeased)
}

// claimLaned claims of a kind that has or had limits; without them got.Limited is false, and it has
// only seen to it that the ordinary claim comes upon what was filed.
func (s *Store) claimLaned(ctx context.Context, g ledger.Grant) (got ledger.Claimed, err error) {
	if s.lanes.free(g.Kind, s.wall()) {
		return got, nil
	}
	for more := true; more && len(got.Records) == 0 && err == nil; {
		err = s.run(ctx, func(ctx context.Context, conn *pgx.Conn) error {
			c := &limitedClaim{claim: blankClaim(g), own: &own{ctx: ctx, s: s, pipe: pipe{conn, s.described}}}
			var err error
			if more, err = c.run(); err != nil {
				c.rollback()
				return err
			}
			got = ledger.Claimed{Limited: c.policy.Limits.Any()}
			if c.admission != nil {
				got.More, got.HeldBack = c.admission.More, c.admission.HeldBack
			}
			_ = c.history(direct{ctx, s, conn}) // as in Claim
			got.Records = append(c.held, c.records()...)
			return nil
		})
	}
	return got, err
}

// limitedClaim is one run of a claim of a kind that has or had limits.
type limitedClaim struct {
	*claim
	*own
	policy    ledger.Kind
	filed     int // by the statement that filed most
	held      []ledger.Record
	whole     ledger.Lane
	admission *ledger.Admission
	read      []readLane // the newest, and those ahead
	lanes     int        // that the newest statement was to read
}

// run says whether there is more to look at, if it leased nothing.
func (c *limitedClaim) run() (more bool, err error) {
	if more, err = c.choose(); err != nil {
		return false, uncommitted(err)
	}
	return more, c.commit()
}

func (c *limitedClaim) choose() (more bool, err error) {
	if err := c.begin(); err != nil || c.policy.Name == "" || c.policy.Paused {
		return false, err
	}
	limits := c.policy.Limits
	start, now := time.Now(), c.s.wall()
	look := c.s.lanes.due(c.g.Kind, limits, now)
	if err := c.file(look); err != nil {
		return false, err
	}
	if look && (limits.Any() || c.filed == 0) {
		c.s.lanes.done(c.g.Kind, limits, now, time.Since(start))
	}
	if !limits.Any() {
		return c.filed == filed, nil
	}
	c.admission = c.policy.Admit(c.now, c.whole, c.g.Limit-len(c.held))
	next, err := c.admission.Walk(c.s.lanes.turn(c.g), c)
	if err != nil {
		return false, err
	}
	c.s.lanes.setTurn(c.g, next)
	return c.filed == filed && c.admission.Room() > 0, c.book()
}

// begin takes the lock and reads the policy and the time, and what the agent holds already.
func (c *limitedClaim) begin() error {
	g := c.g
	statements := []statement{{ownSettings, nil, nil}}
	if g.Resume {
		record := records()
		statements = append(statements,
			statement{"SELECT pg_advisory_xact_lock($1)", []any{lockKey("agent", c.s.schema, g.Agent)}, nil},
			statement{resumeTemplate, []any{g.Kind, g.Agent, g.TTL, g.Limit}, func(scan scanner) error {
				r, err := record(scan)
				c.held = append(c.held, r)
				return err
			}})
	}
	var row kindRow
	statements = append(statements,
		statement{"SELECT pg_advisory_xact_lock($1)", []any{c.s.limitLock(g.Kind)}, nil},
		statement{`SELECT ` + kindColumns + `, {{NOW}} FROM {{S}}.ledger_kinds k WHERE k.kind = $1`, []any{g.Kind}, func(scan scanner) (err error) {
			if err = scan(append(row.dest(), &c.now)...); err == nil {
				c.policy, err = row.kind()
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

// file files what is ready; look says whether to look after the kind, too.
func (c *limitedClaim) file(look bool) error {
	limits := c.policy.Limits
	for _, template := range filing(limits) {
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
	if look && limits.Any() {
		if err := c.later(counting(limits, false), []any{c.g.Kind}, nil); err != nil {
			return err
		}
	}
	if look {
		if err := c.later(`DELETE FROM {{S}}.ledger_lanes WHERE kind = $1 AND next_at <= (SELECT {{NOW}})`, []any{c.g.Kind}, nil); err != nil {
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

// book writes what was granted, with the commit.
func (c *limitedClaim) book() error {
	if len(c.admission.Granted) > 0 {
		c.dest = c.dest[1 : len(c.dest)-1]
		ids := slices.Sorted(slices.Values(c.admission.Granted))
		if err := c.later(stampLimited, []any{ids, c.g.Agent, pgUUID(c.g.LockID), c.now, c.g.TTL}, c.row); err != nil {
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

// jsonLimits are limits as a column keeps them.
func jsonLimits(l ledger.Limits) (string, error) {
	if l == (ledger.Limits{}) {
		return "", nil
	}
	b, err := json.Marshal(l)
	return string(b), err
}

// Gate implements ledger.Tx.
func (t *tx) Gate(kinds []string) (limited []string, err error) {
	err = t.later(`UPDATE {{S}}.ledger_kinds SET gated = true WHERE NOT gated AND limits = '' AND kind = ANY($1)`, []any{kinds}, nil)
	if err == nil {
		err = t.query(`SELECT kind, limits <> '' FROM {{S}}.ledger_kinds WHERE kind = ANY($1) ORDER BY kind FOR SHARE`, []any{kinds}, func(scan scanner) error {
			var kind string
			var has bool
			err := scan(&kind, &has)
			if has {
				limited = append(limited, kind)
			}
			return err
		})
	}
	return limited, err
}

// Gated implements ledger.Tx.
func (t *tx) Gated(kind string) (gated bool, err error) {
	err = t.query(`SELECT gated FROM {{S}}.ledger_kinds WHERE kind = $1`, []any{kind}, func(scan scanner) error { return scan(&gated) })
	return gated, err
}

// Crowding implements ledger.Store.
func (s *Store) Crowding(ctx context.Context, kind, key string) (c ledger.Crowding, err error) {
	c.Key.Key = key
	err = s.read(ctx, func(ss session) error {
		return ss.query(`SELECT {{NOW}}, (SELECT count(*) FROM {{S}}.ledger_backlog WHERE limit_key IS NOT NULL AND lock_id IS NOT NULL AND kind = $1),
 (SELECT next_at FROM {{S}}.ledger_lanes WHERE kind = $1 AND limit_key = ''),
 (SELECT count(*) FROM {{S}}.ledger_backlog WHERE limit_key IS NOT NULL AND lock_id IS NOT NULL AND kind = $1 AND limit_key = $2),
 (SELECT next_at FROM {{S}}.ledger_lanes WHERE kind = $1 AND limit_key = $2)`, []any{kind, key}, func(scan scanner) error {
			var whole, of *time.Time
			err := scan(&c.Now, &c.Whole.Running, &whole, &c.Key.Running, &of)
			c.Now, c.Whole.Next, c.Key.Next = c.Now.UTC(), utc(whole), utc(of)
			return err
		})
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
	const filed = `(SELECT count(*) FROM (SELECT FROM {{S}}.ledger_backlog b
 WHERE limit_key IS NOT NULL AND lock_id IS NULL AND kind = $1 AND (priority, due_at, item_id) < ($2, $3, $4) AND `
	err = s.read(ctx, func(ss session) error {
		return ss.query(`SELECT least($6::bigint, (SELECT count(*) FROM (SELECT FROM {{S}}.ledger_backlog b
 WHERE state = 1 AND gate = 0 AND kind = $1 AND (priority, due_at, item_id) < ($2, $3, $4) AND ($5 = '' OR `+shardKeyOf+` = $5) ORDER BY priority, due_at, item_id LIMIT $6) x) +
 `+filed+`limit_key = $5 ORDER BY priority, due_at, item_id LIMIT $6) x) +
 `+filed+`$5 = '' AND limit_key > '' LIMIT $6) x) +
 `+filed+`$5 <> '' AND limit_key = '' AND `+shardKeyOf+` = $5 LIMIT $6) x))`,
			[]any{r.Kind, r.Work.Priority, r.Work.Due, r.ID, key, limit}, func(scan scanner) error { return scan(&n) })
	})
	return n, err
}
