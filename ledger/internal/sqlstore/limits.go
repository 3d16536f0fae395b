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

// Crowding implements ledger.Store.
func (s Store) Crowding(ctx context.Context, kind, key string) (scheduler.Crowding, error) {
	return read(ctx, s, func(in Session) (scheduler.Crowding, error) {
		c := scheduler.Crowding{Key: scheduler.Lane{Key: key}}
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

// Of returns the cursor of a claim.
func (c *Cursors) Of(g ledger.Grant) scheduler.Cursor {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cursors[part{g.Kind, g.Shard}]
}

// Set moves the cursor for the next claim.
func (c *Cursors) Set(g ledger.Grant, next scheduler.Cursor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cursors == nil {
		c.cursors = map[part]scheduler.Cursor{}
	}
	c.cursors[part{g.Kind, g.Shard}] = next
}
