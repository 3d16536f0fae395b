package sqlstore

import (
	"context"

	"github.com/ledgerd/ledgerd/ledger/internal/code"
	"github.com/ledgerd/ledgerd/ledger/invariant"
)

// noItem ends the FROM clause of rows whose item is missing.
const noItem = ` t WHERE NOT EXISTS (SELECT 1 FROM {{S}}.ledger_items i WHERE i.id = t.item_id)`

// beyondLimits selects the leased items beyond the limits of their kind. Of the items that were leased since the limits
// were set, these are the newest.
const beyondLimits = `(SELECT item_id, limits::json AS limits, row_number() OVER (PARTITION BY kind ORDER BY leased_at, item_id) AS of_kind,
  row_number() OVER (PARTITION BY kind, shard_key ORDER BY leased_at, item_id) AS of_key
 FROM (SELECT b.item_id, b.kind, b.leased_at, k.limits, coalesce(i.shard_key, i.key) AS shard_key
  FROM {{LEASED}} b JOIN {{S}}.ledger_kinds k ON k.kind = b.kind JOIN {{S}}.ledger_items i ON i.id = b.item_id
  WHERE b.limit_key IS NOT NULL AND b.gate = ` + code.Filed + ` AND k.limits <> '') l) t
 WHERE t.of_kind > (t.limits->>'max_running')::int OR t.of_key > (t.limits->>'max_running_per_shard_key')::int`

// Orphans implements ledger.Store.
func (s Store) Orphans(ctx context.Context, limit int) (invariant.Orphans, error) {
	return read(ctx, s, func(in Session) (o invariant.Orphans, err error) {
		for _, c := range []struct {
			ids  *[]int64
			rows string
		}{
			{&o.Backlog, `{{S}}.ledger_backlog` + noItem},
			{&o.Attempts, `{{S}}.ledger_attempts` + noItem},
			{&o.Beyond, beyondLimits},
			{&o.Misfiled,
				`{{S}}.ledger_backlog t JOIN {{S}}.ledger_items i ON i.id = t.item_id JOIN {{S}}.ledger_kinds k ON k.kind = t.kind
 WHERE t.limit_key IS NOT NULL AND (NOT k.laned OR t.limit_key NOT IN ('', coalesce(i.shard_key, i.key)))`},
		} {
			var id int64
			if *c.ids, err = list(in, `SELECT DISTINCT t.item_id FROM `+c.rows+` ORDER BY t.item_id LIMIT $1`, []any{limit},
				[]any{&id}, is(&id)); err != nil {
				return o, err
			}
		}
		return o, nil
	})
}
