package postgres

import (
	"context"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// Each attempt that ended has an entry in one of three indexes, by kind and time.
const (
	endedWell   = `a.final AND a.outcome IN (0, 1, 5)` // and it was the last: in the index of final ones
	endedFailed = `a.outcome IN (2, 8)`
	endedRest   = `(NOT a.final OR a.outcome IN (3, 4, 6, 7)) AND a.outcome NOT IN (2, 8)`
	endedLost   = `a.outcome IN (6, 7)` // of the rest, in an index of their own as well
)

// endedBranch walks one of the indexes from the mark on, kind by kind, up to the limit. OFFSET keeps
// the planner from joining whole tables where it takes the filter for one that leaves little.
const endedBranch = `(SELECT a.* FROM {{S}}.ledger_kinds k CROSS JOIN LATERAL (
 SELECT a.item_id, a.attempt, a.finished_at FROM {{S}}.ledger_attempts a
 CROSS JOIN LATERAL (SELECT i.* FROM {{S}}.ledger_items i WHERE i.id = a.item_id OFFSET 0) i
 LEFT JOIN LATERAL (SELECT b.* FROM {{S}}.ledger_backlog b WHERE b.item_id = a.item_id OFFSET 0) b ON true
 WHERE {{ENDED}} AND a.kind = k.kind AND {{AFTER}} AND {{FILTER}}
 ORDER BY {{ORDER}} LIMIT $4) a WHERE {{KINDS}})`

const endedColumns = `i.id, i.kind, i.scope, i.key, coalesce(i.every, ''), coalesce(i.zone, ''), ` + lastColumns

// Ended implements ledger.Store.
func (s *Store) Ended(ctx context.Context, q ledger.EndedQuery) ([]ledger.Ended, error) {
	after, order := `a.finished_at >= $1 AND (a.finished_at > $1 OR (a.item_id, a.attempt) > ($2, $3))`, `a.finished_at, a.item_id, a.attempt`
	if q.Desc {
		after, order = `a.finished_at <= $1 AND (a.finished_at < $1 OR (a.item_id, a.attempt) < ($2, $3))`, `a.finished_at DESC, a.item_id DESC, a.attempt DESC`
		if q.After == (ledger.Mark{}) {
			q.After.At = endOfTime
		}
	}
	kinds, args := filtered(ledger.Filter{Kinds: q.Filter.Kinds}, q.After.At, q.After.ItemID, q.After.Number, q.Limit)
	condition, args := filtered(q.Filter, args...)
	indexes := []string{endedWell, endedFailed, endedRest}
	if q.Failed {
		indexes = []string{endedFailed, endedLost}
	}
	branches := make([]string, len(indexes))
	for i, index := range indexes {
		branches[i] = strings.NewReplacer("{{ENDED}}", index, "{{AFTER}}", after, "{{ORDER}}", order, "{{FILTER}}", condition,
			"{{KINDS}}", strings.ReplaceAll(kinds, "i.kind", "k.kind")).Replace(endedBranch)
	}
	body := `NULL::bytea, NULL::bytea`
	if q.Body {
		body = `i.payload, a.output`
	}
	var l lastRow
	var e ledger.Ended
	var id int64
	var kind string
	var output []byte
	dest := append([]any{&e.Payload, &output, &id, &kind, &e.Scope, &e.Key, &e.Every, &e.Zone}, l.dest()...)
	byEnd := strings.NewReplacer("a.finished_at", "finished_at", "a.item_id", "item_id", "a.attempt", "attempt").Replace(order)
	return collect(ctx, s, `WITH ended AS MATERIALIZED (`+strings.Join(branches, "\nUNION ALL ")+` ORDER BY `+byEnd+` LIMIT $4)
SELECT `+body+`, `+endedColumns+` FROM ended JOIN {{S}}.ledger_items i ON i.id = ended.item_id
JOIN {{S}}.ledger_attempts a ON a.item_id = ended.item_id AND a.attempt = ended.attempt ORDER BY `+order, args, func(scan scanner) (ledger.Ended, error) {
		if err := scan(dest...); err != nil {
			return ledger.Ended{}, err
		}
		e.Attempt = *l.last(id, kind)
		e.Output = output
		return e, nil
	})
}

// endOfTime is later than any attempt ended.
var endOfTime = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// Ahead implements ledger.Store.
func (s *Store) Ahead(ctx context.Context, r *ledger.Record, limit int) (n int64, err error) {
	_, laned, err := s.gatesOf(ctx, r.Kind)
	if err != nil {
		return 0, err
	}
	if laned || r.Policy.Limits.Any() { // what a process has once learned of a kind may be old
		return s.ahead(ctx, r, limit)
	}
	err = s.read(ctx, func(ss session) error {
		return ss.query(`SELECT count(*) FROM (SELECT FROM {{S}}.ledger_backlog WHERE state = 1 AND gate = 0 AND kind = $1 AND (priority, due_at, item_id) < ($2, $3, $4)
 ORDER BY priority, due_at, item_id LIMIT $5) x`, []any{r.Kind, r.Work.Priority, r.Work.Due, r.ID, limit}, func(scan scanner) error { return scan(&n) })
	})
	return n, err
}
