package sqlite

import (
	"context"
	"math"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/code"
	"github.com/ledgerd/ledgerd/ledger/internal/sqlstore"
	"github.com/ledgerd/ledgerd/ledger/internal/where"
)

// ended is an index that has an entry for some of the attempts, by kind and time, and the condition for these attempts.
// Each attempt is in exactly one of endedWell, endedFailed and endedRest.
type ended struct{ index, condition string }

var (
	endedWell   = ended{"ledger_attempts_final", "a.final = 1 AND a.outcome IN " + code.Closed}
	endedFailed = ended{"ledger_attempts_failed", "a.outcome IN " + code.Failures}
	endedRest   = ended{"ledger_attempts_rest", "(a.final = 0 OR a.outcome IN " + code.NoVerdict +
		") AND a.outcome NOT IN " + code.Failures}
	// of attempts that were lost or are unknown, in a separate index as well
	endedLost = ended{"ledger_attempts_lost", "a.outcome IN " + code.Uncertain}
)

// Ended implements ledger.Store. It reads the indexes of each kind from the mark on, and merges them. Once it has
// enough, it reads no further than the last of these.
func (s *Store) Ended(ctx context.Context, q ledger.EndedQuery) ([]ledger.Ended, error) {
	all := []ledger.Ended{}
	indexes := []ended{endedWell, endedFailed, endedRest}
	if q.Failed {
		indexes = []ended{endedFailed, endedLost}
	}
	columns, after, order := "NULL, NULL", "a.finished_at BETWEEN ?2 AND ?7 AND (a.finished_at > ?2 OR "+
		"(a.item_id, a.attempt) > (?3, ?4))", "a.finished_at, a.item_id, a.attempt"
	end := int64(math.MaxInt64)
	if q.Body {
		columns = "a.output, i.payload"
	}
	at := q.After.At.UnixMicro()
	if q.Desc {
		after, order = "a.finished_at BETWEEN ?7 AND ?2 AND (a.finished_at < ?2 OR (a.item_id, a.attempt) < (?3, ?4))",
			"a.finished_at DESC, a.item_id DESC, a.attempt DESC"
		end = math.MinInt64
		if q.After == (ledger.Mark{}) {
			at = math.MaxInt64
		}
	}
	columns = `a.item_id, a.kind, i.scope, i.key, i.every, i.zone, ` + columns + `, ` + sqlstore.LastColumns
	if q.OnlyItems {
		columns = "a.item_id"
	}
	var e ledger.Ended
	var id int64
	var kind string
	var output []byte
	var last sqlstore.LastRow
	dest := append([]any{&id, &kind, &e.Scope, &e.Key, &e.Every, &e.Zone, &output, &e.Payload}, last.Dest()...)
	err := s.read(ctx, true, func(r session) error {
		known, err := sqlstore.Kinds(s.sharedSession(r))
		if err != nil {
			return err
		}
		of := q.Filter
		of.Kinds = nil // each kind is read by itself
		matches, args := where.Build(of, where.SQLite, "?1", []any{s.clock(), at, q.After.ItemID, q.After.Number,
			q.Limit, "", end})
		joins := " CROSS JOIN ledger_items i ON i.id = a.item_id"
		if q.OnlyItems && !where.NamesItem(matches) {
			joins = ""
		}
		for _, k := range known {
			if q.Filter.Excludes(k.Name) {
				continue
			}
			args[5] = k.Name
			for _, from := range indexes {
				if q.OnlyItems && len(all) >= q.Limit {
					return nil
				}
				err := r.query(`SELECT `+columns+` FROM ledger_attempts a INDEXED BY `+from.index+
					``+joins+` LEFT JOIN ledger_backlog b ON b.item_id = a.item_id
 WHERE `+from.condition+` AND a.kind = ?6 AND `+after+` AND `+matches+` ORDER BY `+order+` LIMIT ?5`, func(r row) error {
					if q.OnlyItems {
						all = append(all, ledger.Ended{Attempt: ledger.Attempt{ItemID: r.int(0)}})
						return nil
					}
					r.scan(dest)
					e.Attempt = *last.Last(id, kind)
					e.Output = output
					all = append(all, e)
					return nil
				}, args...)
				if err != nil {
					return err
				}
				if all = firstEnded(all, q); !q.OnlyItems && len(all) == q.Limit && q.Limit > 0 {
					args[6] = all[q.Limit-1].FinishedAt.UnixMicro()
				}
			}
		}
		return nil
	})
	return all, err
}

// firstEnded returns the first of what was read, in the order of a query.
func firstEnded(all []ledger.Ended, q ledger.EndedQuery) []ledger.Ended {
	if !q.OnlyItems {
		slices.SortFunc(all, func(a, b ledger.Ended) int {
			if q.Desc {
				a, b = b, a
			}
			return a.Mark().Compare(b.Mark())
		})
	}
	n := min(q.Limit, len(all))
	clear(all[n:]) // their payloads need not stay in memory
	return all[:n]
}
