package sqlite

import (
	"context"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/where"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

var selectKnown = newBulk("SELECT i.kind, i.scope, i.key FROM (", 3,
	") v CROSS JOIN ledger_items i ON i.kind = v.column1 AND i.scope = v.column2 AND i.key = v.column3")

// Known implements ledger.Store.
func (s *Store) Known(ctx context.Context, keys []ledger.Identity) ([]bool, error) {
	found := make(map[ledger.Identity]bool, len(keys))
	err := s.read(ctx, true, func(r session) error {
		return selectKnown.query(r, len(keys), func(list []any, i int) []any {
			return append(list, keys[i].Kind, keys[i].Scope, keys[i].Key)
		}, func(r row) error {
			found[ledger.Identity{Kind: r.text(0), Scope: r.text(1), Key: r.text(2)}] = true
			return nil
		})
	})
	known := make([]bool, len(keys))
	for i, k := range keys {
		known[i] = found[k]
	}
	return known, err
}

// Scopes implements ledger.Store. It goes from one scope to the next by the index of identities.
func (s *Store) Scopes(ctx context.Context, kind string, limit int) (all []string, err error) {
	err = s.read(ctx, false, func(r session) error {
		return r.query(`WITH RECURSIVE s(scope) AS (SELECT min(scope) FROM ledger_items WHERE kind = ?1
 UNION ALL SELECT (SELECT min(i.scope) FROM ledger_items i WHERE i.kind = ?1 AND i.scope > s.scope) FROM s WHERE s.scope IS NOT NULL)
SELECT scope FROM s WHERE scope IS NOT NULL LIMIT ?2`, func(r row) error {
			all = append(all, r.text(0))
			return nil
		}, kind, limit)
	})
	return all, err
}

// CountRounds implements ledger.Store.
func (s *Store) CountRounds(ctx context.Context, f ledger.Filter, column string,
	each func(ledger.RoundCount) error) error {
	return s.read(ctx, true, func(r session) error {
		from, id := itemsFrom(f)
		between, above, upTo := bounded(f, from, id)
		matches, args := where.Build(f, where.SQLite, "?1", []any{s.clock(), above, upTo})
		list, group := where.CountRounds(column, "?1")
		return r.query(`SELECT `+list+from+` LEFT JOIN `+newest+` WHERE `+between+matches+group, func(r row) error {
			t := ledger.RoundCount{Value: r.bytes(0), Round: ledger.RoundConditions[r.int(1)], Items: r.int(2)}
			if column != stats.ByPayload {
				t.Value = []byte(r.text(0))
			}
			return each(t)
		}, args...)
	})
}
