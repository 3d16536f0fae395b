package sqlstore

import (
	"cmp"
	"context"
	"sync"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/code"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// running counts leased items under the limits of kind $1; the caller closes the parenthesis.
const running = `(SELECT count(*) FROM {{S}}.ledger_backlog {{BY ledger_backlog_running}} WHERE {{RUNNING}} AND kind = $1`

// LimitUsage implements ledger.Store.
func (s Store) LimitUsage(ctx context.Context, kind, key string) (scheduler.Usage, error) {
	return read(ctx, s, func(in Session) (scheduler.Usage, error) {
		c := scheduler.Usage{Key: scheduler.Lane{Key: key}}
		_, err := row(in, `SELECT {{NOW}}, `+running+
			`), (SELECT next_at FROM {{S}}.ledger_lanes WHERE kind = $1 AND limit_key = ''),
 `+running+` AND limit_key = $2), (SELECT next_at FROM {{S}}.ledger_lanes WHERE kind = $1 AND limit_key = $2)`, []any{kind, key},
			&c.Now, &c.Whole.Running, &c.Whole.Next, &c.Key.Running, &c.Key.Next)
		return c, err
	})
}

const (
	// before is the condition of rows that are claimed before the item $4.
	before = ` AND kind = $1 AND (priority, due_at, item_id) < ($2, $3, $4)`
	free   = `SELECT 1 FROM {{S}}.ledger_backlog b {{BY ledger_backlog_ready}} WHERE {{READY}} AND gate = ` + code.Free + before
	filed  = `SELECT 1 FROM {{S}}.ledger_backlog b {{BY ledger_backlog_lanes}} WHERE {{FILED}}` + before

	shardKey = `(SELECT coalesce(i.shard_key, i.key) FROM {{S}}.ledger_items i WHERE i.id = b.item_id)`
	inOrder  = ` ORDER BY priority, due_at, item_id LIMIT `

	aheadFree = `SELECT count(*) FROM (` + free + inOrder + `$5) x`
	// aheadFiled also counts rows that were filed under earlier limits, since a claim files them again.
	aheadFiled = `SELECT least($6::bigint, (SELECT count(*) FROM (` + free + ` AND ($5 = '' OR ` + shardKey + ` = $5)` +
		inOrder + `$6) x) +
 (SELECT count(*) FROM (` + filed + ` AND limit_key = $5` + inOrder + `$6) x) +
 (SELECT count(*) FROM (` + filed + ` AND $5 = '' AND limit_key > '' LIMIT $6) x) +
 (SELECT count(*) FROM (` + filed + ` AND $5 <> '' AND limit_key = '' AND ` + shardKey + ` = $5 LIMIT $6) x))`
)

// Ahead implements Ahead of ledger.Store. limited means that the kind has or had limits.
func Ahead(ctx context.Context, s Store, r *ledger.Record, limited bool, limit int) (int64, error) {
	statement, args := aheadFree, []any{r.Kind, r.Work.Priority, r.Work.Due, r.ID, limit}
	if limited {
		key := ""
		if r.Policy.Limits.ByKey() {
			key = cmp.Or(r.ShardKey, r.Key)
		}
		statement, args = aheadFiled, append(args[:4], key, limit)
	}
	return read(ctx, s, func(in Session) (n int64, err error) {
		_, err = row(in, statement, args, &n)
		return n, err
	})
}

// namedLanes reads the items $2 of kind $1 that wait under a limit, in shard $3 of $4. The first item of each lane
// comes with what is used of the limits: it counts at most $5 leases. The items are read first, by their ids only, so
// no plan goes over all items of the kind.
const namedLanes = `WITH b AS MATERIALIZED (SELECT * FROM {{S}}.ledger_backlog WHERE item_id = ANY($2))
SELECT limit_key, CASE WHEN n = 1 THEN (SELECT count(*) FROM (SELECT 1 FROM {{S}}.ledger_backlog {{BY ledger_backlog_running}} WHERE {{RUNNING}} AND kind = $1 AND limit_key = c.limit_key LIMIT $5) r) END,
 CASE WHEN n = 1 THEN (SELECT next_at FROM {{S}}.ledger_lanes WHERE kind = $1 AND limit_key = c.limit_key) END, item_id, priority, due_at, alone
FROM (SELECT b.*, row_number() OVER (PARTITION BY limit_key ORDER BY priority, due_at, item_id) AS n
 FROM b WHERE {{FILED}} AND kind = $1 AND slot % $4::int = $3::int) c
ORDER BY limit_key, priority, due_at, item_id`

// NamedLanes returns the lanes of a claim that names its items. The items are filed under the limits.
func NamedLanes(in Session, g ledger.Grant, limits scheduler.Limits) (all scheduler.Named, err error) {
	var l scheduler.Lane
	var c scheduler.Candidate
	args := []any{g.Kind, g.Items, g.Shard.Index, max(g.Shard.Count, 1), limits.MaxRunningPerShardKey}
	dest := []any{&l.Key, &l.Running, &l.Next, &c.ID, &c.Priority, &c.Due, &c.Alone}
	err = in.Query(namedLanes, args, dest, func() error {
		if n := len(all); n == 0 || all[n-1].Key != l.Key {
			all = append(all, scheduler.NamedLane{Lane: l})
		}
		last := &all[len(all)-1]
		last.Items = append(last.Items, c)
		return nil
	})
	return all, err
}

// CompareClaimed is the order of claims.
func CompareClaimed(a, b ledger.Record) int {
	return scheduler.Compare(scheduler.Candidate{ID: a.ID, Priority: a.Work.Priority, Due: a.Work.Due},
		scheduler.Candidate{ID: b.ID, Priority: b.Work.Priority, Due: b.Work.Due})
}

// Cursors remembers, for each kind and shard, the shard key behind which the next claim begins.
type Cursors struct {
	mu      sync.Mutex
	cursors map[part]scheduler.Cursor
}

type part struct {
	kind  string
	shard scheduler.Shard
}

// Of returns the cursor of a claim. A claim that names items begins at the first of their keys and moves no cursor.
func (c *Cursors) Of(g ledger.Grant) scheduler.Cursor {
	if len(g.Items) > 0 {
		return scheduler.Cursor{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cursors[part{g.Kind, g.Shard}]
}

// Set moves the cursor for the next claim.
func (c *Cursors) Set(g ledger.Grant, next scheduler.Cursor) {
	if len(g.Items) > 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cursors == nil {
		c.cursors = map[part]scheduler.Cursor{}
	}
	c.cursors[part{g.Kind, g.Shard}] = next
}
