package sqlite

import (
	"context"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger/internal/code"
)

// pruneSlice is how many items one turn prunes. It is small, because other turns wait meanwhile.
const pruneSlice = 200

// prunable is the condition under which attempt a of item i is the cut of the item: the oldest attempt that stays. All
// older attempts are removed.
//
//   - Not recurring (every IS NULL): the item is finished and a is its last attempt. There must be something to remove:
//     an older attempt, the payload, or the output, log or error of a.
//   - Recurring: a is the newest completed attempt that ended before ?2, or the newest final one if none was completed.
//     There must be an older attempt.
//
// The condition is checked for attempts of kind ?1 that ended from ?3 to before ?2, and again for each item before it
// is pruned.
const (
	cutColumns = `SELECT a.item_id, a.attempt, i.every IS NULL, a.finished_at FROM `
	prunable   = ` CROSS JOIN ledger_items i ON i.id = a.item_id
 WHERE a.final = 1 AND
  CASE WHEN i.every IS NULL
   THEN NOT EXISTS (SELECT 1 FROM ledger_backlog b WHERE b.item_id = i.id) AND
    NOT EXISTS (SELECT 1 FROM ledger_attempts n WHERE n.item_id = i.id AND n.attempt > a.attempt) AND
    (coalesce(nullif(i.payload, x''), a.output, a.log, a.error) IS NOT NULL OR
     EXISTS (SELECT 1 FROM ledger_attempts o WHERE o.item_id = i.id AND o.attempt < a.attempt))
   ELSE EXISTS (SELECT 1 FROM ledger_attempts o WHERE o.item_id = i.id AND o.attempt < a.attempt) AND
    NOT EXISTS (SELECT 1 FROM ledger_attempts n WHERE n.item_id = i.id AND n.attempt > a.attempt AND
     n.finished_at < ?2 AND
     (n.outcome IN ` + code.Completed + ` OR
      n.final = 1 AND a.outcome NOT IN ` + code.Completed + `)) AND
    (a.outcome IN ` + code.Completed + ` OR
     NOT EXISTS (SELECT 1 FROM ledger_attempts o WHERE o.item_id = i.id AND o.attempt < a.attempt AND
      o.outcome IN ` + code.Completed + `))
  END`
	cutsOfKind = cutColumns + `ledger_attempts a INDEXED BY ledger_attempts_final` + prunable +
		` AND a.kind = ?1 AND a.finished_at < ?2 AND a.finished_at >= ?3 ORDER BY a.finished_at LIMIT ?4`
	cutsOfItems = cutColumns + `json_each(?3) j CROSS JOIN ledger_attempts a ON a.item_id = j.value` + prunable +
		` AND +a.kind = ?1 AND +a.finished_at < ?2`
)

// cut is the oldest attempt that pruning keeps of an item.
type cut struct {
	id, attempt int64
	emptied     bool // this attempt loses its output, log and error, and the item its payload
	at          time.Time
}

// Prune implements ledger.Store. It searches on a connection that only reads. A search begins at the time at which the
// one before ended, so it does not read pruned items again.
func (s *Store) Prune(ctx context.Context, kind string, before time.Time, limit int) (pruned int, err error) {
	var found []cut
	var since any = int64(0)
	if at, ok := s.pruned.Load(kind); ok && at.(int64) <= before.UnixMicro() { // else the clock was set back
		since = at
	}
	err = s.read(ctx, true, func(r session) (err error) {
		found, err = cuts(r, cutsOfKind, kind, before.UnixMicro(), since, limit)
		return err
	})
	if err != nil {
		return 0, err
	}
	for slice := range slices.Chunk(found, pruneSlice) {
		ids := make([]int64, len(slice))
		for i, c := range slice {
			ids[i] = c.id
		}
		done := 0
		err := s.write(ctx, false, func(t *turn) (err error) {
			done, err = prune(t, kind, before, ids)
			return err
		})
		if err != nil {
			return pruned, err
		}
		pruned += done
	}
	if len(found) < limit {
		s.pruned.Store(kind, before.UnixMicro())
	} else if len(found) > 0 {
		s.pruned.Store(kind, found[len(found)-1].at.UnixMicro())
	}
	return pruned, nil
}

// prune removes, in a turn, what can still be removed of these items.
func prune(t *turn, kind string, before time.Time, ids []int64) (int, error) {
	found, err := cuts(t, cutsOfItems, kind, before.UnixMicro(), array(ids))
	if err != nil {
		return 0, err
	}
	for _, c := range found {
		_, err := t.exec(`DELETE FROM ledger_attempts WHERE item_id = ?1 AND attempt < ?2`, c.id, c.attempt)
		if err == nil {
			_, err = t.exec(
				`UPDATE ledger_items SET base_attempt = ?2, payload = CASE WHEN ?3 AND payload IS NOT NULL THEN x'' ELSE payload END WHERE id = ?1`, c.id, c.attempt-1, c.emptied)
		}
		if err == nil && c.emptied {
			_, err = t.exec(
				`UPDATE ledger_attempts SET output = NULL, log = NULL, error = NULL WHERE item_id = ?1 AND attempt = ?2`, c.id, c.attempt)
		}
		if err != nil {
			return 0, err
		}
	}
	return len(found), nil
}

func cuts(s session, query string, args ...any) (found []cut, err error) {
	err = s.query(query, func(r row) error {
		found = append(found, cut{r.int(0), r.int(1), r.bool(2), r.time(3)})
		return nil
	}, args...)
	return found, err
}
