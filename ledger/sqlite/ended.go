package sqlite

import (
	"context"
	"math"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/where"
)

// ended is an index that some of the attempts have an entry in, by kind and time, with the
// condition that says which. Each attempt is in one of the three.
type ended struct{ index, condition string }

var (
	endedWell   = ended{"ledger_attempts_final", "a.final = 1 AND a.outcome IN (0, 1, 5)"}
	endedFailed = ended{"ledger_attempts_failed", "a.outcome IN (2, 8)"}
	endedRest   = ended{"ledger_attempts_rest", "(a.final = 0 OR a.outcome IN (3, 4, 6, 7)) AND a.outcome NOT IN (2, 8)"}
	endedLost   = ended{"ledger_attempts_lost", "a.outcome IN (6, 7)"} // of the rest, in an index of their own as well
)

// Ended implements ledger.Store: each kind's indexes from the mark on, then the first of all.
func (s *Store) Ended(ctx context.Context, q ledger.EndedQuery) ([]ledger.Ended, error) {
	all := []ledger.Ended{}
	indexes := []ended{endedWell, endedFailed, endedRest}
	if q.Failed {
		indexes = []ended{endedFailed, endedLost}
	}
	columns, after, order := "NULL, NULL", "a.finished_at >= ?2 AND (a.finished_at > ?2 OR (a.item_id, a.attempt) > (?3, ?4))", "a.finished_at, a.item_id, a.attempt"
	if q.Body {
		columns = "a.output, i.payload"
	}
	at := q.After.At.UnixMicro()
	if q.Desc {
		after, order = "a.finished_at <= ?2 AND (a.finished_at < ?2 OR (a.item_id, a.attempt) < (?3, ?4))", "a.finished_at DESC, a.item_id DESC, a.attempt DESC"
		if q.After == (ledger.Mark{}) {
			at = math.MaxInt64
		}
	}
	err := s.read(ctx, true, func(r session) error {
		known, err := kinds(r)
		if err != nil {
			return err
		}
		matches, args := where.Build(q.Filter, where.SQLite, "?1", []any{s.clock(), at, q.After.ItemID, q.After.Number, q.Limit, ""})
		for _, k := range known {
			if excludes(q.Filter, k.Name) {
				continue
			}
			args[5] = k.Name
			for _, e := range indexes {
				err := r.query(`SELECT a.item_id, a.attempt, a.kind, a.agent, a.lock_id, a.worker, a.epoch, a.period, a.leased_at, a.finished_at, a.outcome, a.final, a.code, a.error,
 i.scope, i.key, i.every, i.zone, `+columns+` FROM ledger_attempts a INDEXED BY `+e.index+` CROSS JOIN ledger_items i ON i.id = a.item_id LEFT JOIN ledger_backlog b ON b.item_id = i.id
 WHERE `+e.condition+` AND a.kind = ?6 AND `+after+` AND `+matches+` ORDER BY `+order+` LIMIT ?5`, func(r row) error {
					found := ledger.Ended{Attempt: scanAttempt(r[:14]), Scope: r.text(14), Key: r.text(15), Every: r.text(16), Zone: r.text(17), Payload: r.bytes(19)}
					found.Output = r.bytes(18)
					all = append(all, found)
					return nil
				}, args...)
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
	slices.SortFunc(all, func(a, b ledger.Ended) int {
		if q.Desc {
			a, b = b, a
		}
		return a.Mark().Compare(b.Mark())
	})
	return all[:min(q.Limit, len(all))], err
}

// excludes says that a filter names kinds, and not this one.
func excludes(f ledger.Filter, kind string) bool {
	return slices.ContainsFunc(parts(f), func(p ledger.Filter) bool { return len(p.Kinds) > 0 && !slices.Contains(p.Kinds, kind) })
}

// Ahead implements ledger.Store.
func (s *Store) Ahead(ctx context.Context, r *ledger.Record, limit int) (n int64, err error) {
	laned := false
	err = s.read(ctx, false, func(ss session) (err error) {
		_, laned, err = gatesOf(ss, r.Kind)
		return err
	})
	if err != nil {
		return 0, err
	}
	if laned {
		return s.ahead(ctx, r, limit)
	}
	err = s.read(ctx, false, func(ss session) error {
		return ss.query(`SELECT count(*) FROM (SELECT 1 FROM ledger_backlog INDEXED BY ledger_backlog_ready
 WHERE state = 1 AND gate = 0 AND kind = ?1 AND (priority, due_at, item_id) < (?2, ?3, ?4) LIMIT ?5)`, func(r row) error {
			n = r.int(0)
			return nil
		}, r.Kind, r.Work.Priority, r.Work.Due, r.ID, limit)
	})
	return n, err
}
