package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/where"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// Known implements ledger.Store.
func (s *Store) Known(ctx context.Context, keys []ledger.Identity) ([]bool, error) {
	found := make(map[ledger.Identity]int64, len(keys))
	err := s.read(ctx, func(ss session) error { return identify(ss, keys, found) })
	known := make([]bool, len(keys))
	for i, k := range keys {
		_, known[i] = found[k]
	}
	return known, err
}

// Scopes implements ledger.Store: from one scope to the next, by the index of identities.
func (s *Store) Scopes(ctx context.Context, kind string, limit int) ([]string, error) {
	return collect(ctx, s,
		`WITH RECURSIVE s(scope) AS ((SELECT i.scope FROM {{S}}.ledger_items i WHERE i.kind = $1 ORDER BY i.scope LIMIT 1)
 UNION ALL SELECT n.scope FROM s, LATERAL (SELECT i.scope FROM {{S}}.ledger_items i WHERE i.kind = $1 AND i.scope > s.scope ORDER BY i.scope LIMIT 1) n)
SELECT scope FROM s LIMIT $2`, []any{kind, limit}, func(scan scanner) (scope string, err error) {
			err = scan(&scope)
			return scope, err
		})
}

// CountRounds implements ledger.Store. Groups that each was called with cannot be taken back, so after the first one
// the statement is not repeated.
func (s *Store) CountRounds(ctx context.Context, f ledger.Filter, column string,
	each func(ledger.RoundCount) error) error {
	above, upTo := f.Bounds()
	condition, args := filtered(f, above, upTo)
	list, group := where.CountRounds(column, "(SELECT {{NOW}})")
	from := counted(f, condition+list)
	var failed error // of scan or each: it is returned as it is
	begun := false
	err := s.runIn(ctx, s.pool, func(ctx context.Context, c *pgx.Conn) error {
		err := direct{ctx, s, c}.query(`SELECT `+list+` FROM `+from+` WHERE `+condition+group, args,
			func(scan scanner) error {
				var t ledger.RoundCount
				var round int
				begun = true
				if column == stats.ByPayload {
					failed = scan(&t.Value, &round, &t.Items)
				} else {
					var text string
					failed = scan(&text, &round, &t.Items)
					t.Value = []byte(text)
				}
				if failed == nil {
					t.Round = ledger.RoundConditions[round]
					failed = each(t)
				}
				return failed
			})
		if begun && err != nil {
			return final{err}
		}
		return uncommitted(err)
	})
	if failed != nil {
		return failed
	}
	return err
}
