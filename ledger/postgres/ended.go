package postgres

import (
	"context"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/code"
	"github.com/ledgerd/ledgerd/ledger/internal/sqlstore"
	"github.com/ledgerd/ledgerd/ledger/internal/where"
)

// Conditions of attempts that ended; each has an index by kind and time. Each attempt meets exactly one of the first
// three. The fourth is a part of the third: with endedFailed it has all that EndedQuery.Failed asks for.
const (
	endedWell   = `a.final AND a.outcome IN ` + code.Closed // the last attempt of its round, and it closed the round
	endedFailed = `a.outcome IN ` + code.Failures
	endedRest   = `(NOT a.final OR a.outcome IN ` + code.NoVerdict + `) AND a.outcome NOT IN ` + code.Failures
	endedLost   = `a.outcome IN ` + code.Uncertain // lost or unknown
)

// endedBranch walks one of the indexes from the mark on, kind by kind, up to the limit. OFFSET keeps the planner from
// joining whole tables when it believes that few rows pass the filter.
const endedBranch = `(SELECT e.* FROM {{S}}.ledger_kinds k CROSS JOIN LATERAL (
 SELECT a.item_id, a.attempt, a.finished_at FROM {{S}}.ledger_attempts a
 {{JOINS}}
 WHERE {{ENDED}} AND a.kind = k.kind AND {{AFTER}} AND {{FILTER}}
 ORDER BY {{ORDER}} LIMIT $4) e WHERE {{KINDS}})`

const (
	endedItem    = `CROSS JOIN LATERAL (SELECT i.* FROM {{S}}.ledger_items i WHERE i.id = a.item_id OFFSET 0) i`
	endedBacklog = ` LEFT JOIN LATERAL (SELECT b.* FROM ` + work + ` b WHERE b.item_id = a.item_id OFFSET 0) b ON true`
)

const endedColumns = `i.id, i.kind, i.scope, i.key, coalesce(i.every, ''), coalesce(i.zone, ''), ` +
	sqlstore.LastColumns

// direction is how a walk goes through the attempts: those after the mark $1 … $3, and their order.
type direction struct{ after, order string }

var (
	forward = direction{`a.finished_at >= $1 AND (a.finished_at > $1 OR (a.item_id, a.attempt) > ($2, $3))`,
		`a.finished_at, a.item_id, a.attempt`}
	backward = direction{`a.finished_at <= $1 AND (a.finished_at < $1 OR (a.item_id, a.attempt) < ($2, $3))`,
		`a.finished_at DESC, a.item_id DESC, a.attempt DESC`}
)

// Ended implements ledger.Store.
func (s *Store) Ended(ctx context.Context, q ledger.EndedQuery) ([]ledger.Ended, error) {
	dir := forward
	if q.Desc {
		dir = backward
		if q.After == (ledger.Mark{}) {
			q.After.At = endOfTime
		}
	}
	kinds, args := filtered(ledger.Filter{Kinds: q.Filter.Kinds}, q.After.At, q.After.ItemID, q.After.Number, q.Limit)
	others := q.Filter
	others.Kinds = nil // the branches choose the kinds
	condition, args := filtered(others, args...)
	indexes := []string{endedWell, endedFailed, endedRest}
	if q.Failed {
		indexes = []string{endedFailed, endedLost}
	}
	joins := ""
	if where.NamesItem(condition) {
		joins = endedItem
	}
	if where.NamesBacklog(condition) {
		joins += endedBacklog
	}
	branches := make([]string, len(indexes))
	for i, index := range indexes {
		branches[i] = strings.NewReplacer("{{JOINS}}", joins, "{{ENDED}}", index, "{{AFTER}}", dir.after, "{{ORDER}}",
			dir.order, "{{FILTER}}", condition, "{{KINDS}}", strings.ReplaceAll(kinds, "i.kind", "k.kind")).Replace(endedBranch)
	}
	byEnd := strings.NewReplacer("a.finished_at", "finished_at", "a.item_id", "item_id", "a.attempt",
		"attempt").Replace(dir.order)
	all := strings.Join(branches, "\nUNION ALL ")
	if q.OnlyItems {
		return collect(ctx, s, `SELECT item_id FROM (`+all+`) ended LIMIT $4`, args, func(scan scanner) (e ledger.Ended, err error) {
			err = scan(&e.ItemID)
			return e, err
		})
	}
	body := `NULL::bytea, NULL::bytea`
	if q.Body {
		body = `i.payload, a.output`
	}
	var l sqlstore.LastRow
	var e ledger.Ended
	var id int64
	var kind string
	var output []byte
	row := targetsOf(append([]any{&e.Payload, &output, &id, &kind, &e.Scope, &e.Key, &e.Every, &e.Zone}, l.Dest()...)...)
	return collect(ctx, s, `WITH ended AS MATERIALIZED (`+all+` ORDER BY `+byEnd+` LIMIT $4)
SELECT `+body+`, `+endedColumns+` FROM ended JOIN {{S}}.ledger_items i ON i.id = ended.item_id
JOIN {{S}}.ledger_attempts a ON a.item_id = ended.item_id AND a.attempt = ended.attempt ORDER BY `+dir.order, args, func(scan scanner) (ledger.Ended, error) {
		if err := row.scan(scan); err != nil {
			return ledger.Ended{}, err
		}
		e.Attempt = *l.Last(id, kind)
		e.Output = output
		return e, nil
	})
}

// endOfTime is later than the end of any attempt.
var endOfTime = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
