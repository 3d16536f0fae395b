package sqlite

import (
	"context"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/code"
)

const (
	// ready selects what may be claimed of kind ?1 in shard ?2 of ?3, unless the kind is paused. The query names its
	// index: with statistics taken while all items were ready, SQLite would scan the whole table for the first one.
	ready = ` FROM ledger_backlog b INDEXED BY ledger_backlog_ready` + mayClaim
	// named is ready for a claim that names the items in the list ?5.
	named    = ` FROM json_each(?5) j CROSS JOIN ledger_backlog b NOT INDEXED ON b.item_id = j.value` + mayClaim
	mayClaim = ` CROSS JOIN ledger_items i ON i.id = b.item_id
 WHERE b.state = ` + code.Ready + ` AND b.gate = ` + code.Free + ` AND b.kind = ?1 AND NOT coalesce((SELECT paused FROM ledger_kinds WHERE kind = ?1), 0) AND b.slot % ?3 = ?2`
	inOrder    = ` ORDER BY b.priority, b.due_at, b.item_id LIMIT ?4`
	claimReady = `SELECT ` + readyColumns + ready + inOrder
	claimNamed = `SELECT ` + readyColumns + named + inOrder
	// resumable selects what agent ?2 holds of kind ?1. Few items are leased at a time.
	resumable = ` FROM ledger_backlog b INDEXED BY ledger_backlog_leased CROSS JOIN ledger_items i ON i.id = b.item_id WHERE b.state = ` + code.Leased + ` AND b.kind = ?1 AND b.locked_by = ?2`
	ofNamed   = ` AND b.item_id IN (SELECT value FROM json_each(?5))`
)

// shard returns the index and the count of the shard that a claim takes. Without a shard it is 0 of 1: everything.
func shard(g ledger.Grant) (index, count int) { return g.Shard.Index, max(g.Shard.Count, 1) }

// Claim implements ledger.Store. It first reads, on a reading connection, whether an item is ready, so that a claim
// that finds nothing does not take the write lock.
func (s *Store) Claim(ctx context.Context, g ledger.Grant) (ledger.Claimed, error) {
	some := false
	var got ledger.Claimed
	err := s.probe(ctx, func(r session) (err error) {
		some, err = someFree(r, g)
		if err != nil || some {
			return err
		}
		laned, err := isLaned(r, g.Kind)
		if err == nil && laned {
			some, got, err = s.someLaned(r, g)
		}
		return err
	})
	if err != nil || !some {
		return got, err
	}
	err = s.write(ctx, true, func(t *turn) error {
		laned, err := isLaned(t, g.Kind)
		got = ledger.Claimed{}
		switch {
		case err != nil:
		case laned:
			got, err = s.claimLaned(t, g)
		default:
			got.Records, err = claim(t, g)
		}
		return err
	})
	if err != nil {
		return ledger.Claimed{}, err
	}
	return got, nil
}

// someFree reports whether an item is ready that is under no limit, or the agent holds one to resume.
func someFree(r session, g ledger.Grant) (some bool, err error) {
	index, count := shard(g)
	from, held, args := ready, resumable, []any{g.Kind, index, count}
	holder := []any{g.Kind, g.Agent}
	if len(g.Items) > 0 {
		list := array(g.Items) // ?5: named has no ?4, ofNamed neither ?3 nor ?4
		from, held, args, holder = named, resumable+ofNamed, append(args, nil, list), append(holder, nil, nil, list)
	}
	some, err = exists(r, `SELECT 1`+from, args...)
	if err == nil && !some && g.Resume {
		some, err = exists(r, `SELECT 1`+held, holder...)
	}
	return some, err
}

// claim leases items within a transaction.
func claim(t *turn, g ledger.Grant) ([]ledger.Record, error) {
	expires := t.now.Add(g.TTL)
	var held []ledger.Record
	if g.Resume {
		var err error
		if held, err = resume(t, g, expires); err != nil {
			return nil, err
		}
	}
	index, count := shard(g)
	statement, args := claimReady, []any{g.Kind, index, count, g.Limit - len(held)}
	if len(g.Items) > 0 {
		statement, args = claimNamed, append(args, array(g.Items))
	}
	var fresh []ledger.Record
	err := t.query(statement, func(r row) error {
		if rec := scanReady(r); len(fresh) == 0 || !rec.Work.Alone && !fresh[0].Work.Alone {
			fresh = append(fresh, rec)
			return nil
		}
		return errEnough
	}, args...)
	if err != nil && err != errEnough {
		return nil, err
	}
	if err := addHistory(t, fresh); err != nil || len(fresh) == 0 {
		return held, err
	}
	for i := range fresh {
		w := fresh[i].Work
		w.State, w.Attempt = ledger.StateLeased, g.Next(w.Attempt)
		w.Agent, w.LockID, w.LeasedAt, w.ExpiresAt = g.Agent, g.LockID, t.now, expires
	}
	return append(held, fresh...), stamp(t, g, recordIDs(fresh))
}

// resume extends the leases that the agent has of the kind, and returns them.
func resume(t *turn, g ledger.Grant, expires time.Time) ([]ledger.Record, error) {
	from, args := resumable, []any{g.Kind, g.Agent, g.Limit}
	if len(g.Items) > 0 {
		from, args = from+ofNamed, append(args, nil, array(g.Items)) // ?5: there is no ?4
	}
	held, err := records(t, `SELECT `+recordColumns+from+` ORDER BY b.item_id LIMIT ?3`, args...)
	if err != nil || len(held) == 0 {
		return held, err
	}
	for i := range held {
		held[i].Work.ExpiresAt = expires
	}
	_, err = t.exec(`UPDATE ledger_backlog SET expires_at = ?2 WHERE item_id IN (SELECT value FROM json_each(?1))`,
		array(recordIDs(held)), expires)
	return held, err
}

func recordIDs(recs []ledger.Record) []int64 {
	ids := make([]int64, len(recs))
	for i := range recs {
		ids[i] = recs[i].ID
	}
	return ids
}
