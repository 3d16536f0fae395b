package postgres

import (
	"context"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/code"
)

// lookTemplate asks whether a claim would find anything, as claimTemplate does: $1 kind, $2 priorities, $3 and $4 their
// positions. It locks nothing, and there is nothing to commit.
const lookTemplate = `SELECT {{NOW}}, coalesce(k.paused, false), coalesce(k.laned, false), EXISTS (
  SELECT FROM unnest($2::smallint[], $3::timestamptz[], $4::bigint[]) p(priority, due, id) CROSS JOIN LATERAL (
   SELECT item_id FROM {{S}}.ledger_backlog
   WHERE ` + isReady + ` AND gate = ` + code.Free + ` AND kind = $1 AND priority = p.priority AND (due_at, item_id) >= (p.due, p.id){{SHARD}}
   ORDER BY due_at, item_id LIMIT (SELECT 1)) x)
FROM (SELECT) one LEFT JOIN {{S}}.ledger_kinds k ON k.kind = $1`

// lookSQL are the variants of lookTemplate: [shard].
var lookSQL = [2]string{
	strings.Replace(lookTemplate, "{{SHARD}}", "", 1),
	strings.Replace(lookTemplate, "{{SHARD}}", inShard("$5", "$6"), 1),
}

// someReady reports whether a claim may find something. The kind has no limits as far as this process knows.
func (s *Store) someReady(ctx context.Context, g ledger.Grant) (some bool, err error) {
	c := s.newClaim(g)
	f := found{all: true}
	template, args := lookSQL[0], append([]any{g.Kind}, c.places()...)
	if g.Shard.Count > 0 {
		template, args = lookSQL[1], append(args, g.Shard.Count, g.Shard.Index)
	}
	paused := false
	err = s.lookUp(ctx, func(ss session) error {
		return ss.query(template, args, func(scan scanner) error { return scan(&f.now, &paused, &c.laned, &some) })
	})
	if err != nil || paused || some {
		f.now = time.Time{} // it did not look at all rows, so the positions stay
	}
	s.positions.claimed(c.walks, f)
	s.laned.learn(g.Kind, c.laned)
	return c.laned || some && !paused, err
}
