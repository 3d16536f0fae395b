package sqlite

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/code"
)

// plain is the key by which completions without code, error, log and output are grouped. One statement writes all
// completions with the same key. Most completions are plain.
type plain struct {
	lock    uuid.UUID
	outcome ledger.Outcome
	worker  string
}

const (
	// fast is the condition on rows of the backlog that Complete may end. For a first attempt the item is not read.
	fast = `b.reopen = 0 AND b.cancel = 0
 AND (b.attempt = 1 OR (SELECT i.failing_since FROM ledger_items i WHERE i.id = b.item_id) IS NULL)`
	completed = `INSERT INTO ledger_attempts (item_id, attempt, epoch, kind, final, leased_at, agent, lock_id, due_at, started_at, renewals, finished_at, outcome, worker, code, error, log, output)
 SELECT b.item_id, b.attempt, b.epoch, b.kind, 1, b.leased_at, b.locked_by, b.lock_id, b.due_at, b.started_at, b.renewals, `
	completePlain = completed + `?3, ?4, ?5, NULL, NULL, NULL, NULL FROM ledger_backlog b
 WHERE b.item_id IN (SELECT value FROM json_each(?1)) AND b.lock_id = ?2 AND ` + fast + ` RETURNING item_id`
)

var completeFull = newBulk(completed+
	`v.column3, v.column4, v.column5, v.column6, v.column7, v.column8, v.column9 FROM (`, 9,
	`) v CROSS JOIN ledger_backlog b ON b.item_id = v.column1 WHERE b.lock_id = v.column2 AND `+fast+` RETURNING item_id`)

// Complete implements ledger.Store.
func (s *Store) Complete(ctx context.Context, conn ledger.Conn, c []ledger.Completion) (landed []int64, err error) {
	groups, full := group(c)
	run := func(in session, now time.Time) (err error) {
		landed, err = finish(in, now, groups, full, len(c))
		return err
	}
	if conn == nil {
		err = s.write(ctx, false, func(t *turn) error { return run(t, t.now) })
	} else {
		s.mu.RLock()
		defer s.mu.RUnlock()
		if s.closed {
			return nil, errClosed
		}
		err = s.inside(ctx, conn, func(x *tx) error { return run(x.session, x.now) })
	}
	if err != nil {
		return nil, err
	}
	return landed, nil
}

// CompleteAndClaim implements ledger.Store.
func (s *Store) CompleteAndClaim(ctx context.Context, c []ledger.Completion, g ledger.Grant) (landed []int64,
	got ledger.Claimed, err error) {
	groups, full := group(c)
	err = s.write(ctx, false, func(t *turn) error {
		var err error
		if landed, err = finish(t, t.now, groups, full, len(c)); err != nil {
			return err
		}
		if got.More, err = isLaned(t, g.Kind); err == nil && !got.More {
			got.Records, err = claim(t, g)
		}
		return err
	})
	if err != nil {
		return nil, ledger.Claimed{More: got.More}, err
	}
	return landed, got, nil
}

// group splits completions into plain ones and others. If a lease has several, only the first counts.
func group(c []ledger.Completion) (groups map[plain][]int64, full []ledger.Completion) {
	groups = map[plain][]int64{}
	seen := make(map[ledger.LeaseRef]bool, len(c))
	for i := range c {
		e := &c[i]
		if seen[e.LeaseRef] || e.LockID == uuid.Nil {
			continue
		}
		seen[e.LeaseRef] = true
		if e.Code == "" && e.Error == "" && e.Log == "" && len(e.Output) == 0 {
			p := plain{e.LockID, e.Outcome, e.Worker}
			groups[p] = append(groups[p], e.ItemID)
		} else {
			full = append(full, *e)
		}
	}
	return groups, full
}

// finish writes completions and removes the backlog rows that they end.
func finish(in session, now time.Time, groups map[plain][]int64, full []ledger.Completion, n int) ([]int64, error) {
	landed := make([]int64, 0, n)
	each := func(r row) error {
		landed = append(landed, r.int(0))
		return nil
	}
	for p, ids := range groups {
		if err := in.query(completePlain, each, array(ids), p.lock, now, code.OfOutcome(p.outcome),
			null(p.worker)); err != nil {
			return nil, err
		}
	}
	err := completeFull.query(in, len(full), func(list []any, i int) []any {
		e := &full[i]
		return append(list, e.ItemID, e.LockID, now, code.OfOutcome(e.Outcome), null(e.Worker), null(e.Code), null(e.Error),
			null(e.Log), e.Output)
	}, each)
	if err != nil {
		return nil, err
	}
	return landed, remove(in, "ledger_backlog WHERE item_id", landed)
}

// byToken groups leases by their token.
func byToken(leases []ledger.LeaseRef) map[uuid.UUID][]int64 {
	groups := map[uuid.UUID][]int64{}
	for _, l := range leases {
		if l.LockID != uuid.Nil {
			groups[l.LockID] = append(groups[l.LockID], l.ItemID)
		}
	}
	return groups
}

// Renew implements ledger.Store. No other process can lock rows here, so a lease that is missing from the answer is
// lost.
func (s *Store) Renew(ctx context.Context, ttl time.Duration, leases []ledger.LeaseRef) (renewed []ledger.Renewal,
	err error) {
	groups := byToken(leases)
	err = s.write(ctx, false, func(t *turn) error {
		expires := t.now.Add(ttl)
		for lock, ids := range groups {
			err := t.query(
				`UPDATE ledger_backlog SET expires_at = ?3, renewals = coalesce(renewals, 0) + 1 WHERE item_id IN (SELECT value FROM json_each(?1)) AND lock_id = ?2 RETURNING item_id, cancel`, func(r row) error {
					renewed = append(renewed, ledger.Renewal{LeaseRef: ledger.LeaseRef{ItemID: r.int(0), LockID: lock},
						ExpiresAt: expires, Cancel: r.bool(1)})
					return nil
				}, array(ids), lock, expires)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return renewed, nil
}

// Start implements ledger.Store.
func (s *Store) Start(ctx context.Context, ttl time.Duration, leases []ledger.LeaseRef) (started []int64, err error) {
	groups := byToken(leases)
	err = s.write(ctx, false, func(t *turn) error {
		for lock, ids := range groups {
			err := t.query(`UPDATE ledger_backlog SET started_at = ?3, expires_at = ?4
 WHERE item_id IN (SELECT value FROM json_each(?1)) AND lock_id = ?2 AND cancel = 0 RETURNING item_id`, func(r row) error {
				started = append(started, r.int(0))
				return nil
			}, array(ids), lock, t.now, t.now.Add(ttl))
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return started, nil
}

// Holders implements ledger.Store. It finds leased items by their token: a condition on the state would read the whole
// index of leased items.
func (s *Store) Holders(ctx context.Context, ids []int64) (held []ledger.Renewal, err error) {
	err = s.probe(ctx, func(r session) error {
		return r.query(`SELECT item_id, lock_id, expires_at, cancel FROM ledger_backlog
 WHERE item_id IN (SELECT value FROM json_each(?1)) AND lock_id IS NOT NULL ORDER BY item_id`, func(r row) error {
			held = append(held, ledger.Renewal{LeaseRef: ledger.LeaseRef{ItemID: r.int(0), LockID: r.uuid(1)},
				ExpiresAt: r.time(2), Cancel: r.bool(3)})
			return nil
		}, array(ids))
	})
	return held, err
}

// Leased implements ledger.Store.
func (s *Store) Leased(ctx context.Context, ids []int64) (leased []ledger.Record, err error) {
	err = s.probe(ctx, func(r session) error {
		return r.query(`SELECT b.item_id, i.kind, i.scope, i.key, i.every, i.zone,
 b.epoch, b.attempt, b.locked_by, b.lock_id, b.leased_at, b.expires_at, b.alone, b.due_at
 FROM ledger_backlog b CROSS JOIN ledger_items i ON i.id = b.item_id
 WHERE b.item_id IN (SELECT value FROM json_each(?1)) AND b.lock_id IS NOT NULL`, func(r row) error {
			leased = append(leased, ledger.Record{ID: r.int(0),
				Identity: ledger.Identity{Kind: r.text(1), Scope: r.text(2), Key: r.text(3)},
				Stored:   ledger.Stored{Every: r.text(4), Zone: r.text(5)},
				Work: &ledger.Work{State: ledger.StateLeased, Epoch: r.int(6), Attempt: r.int(7), Agent: r.text(8),
					LockID: r.uuid(9), LeasedAt: r.time(10), ExpiresAt: r.time(11), Alone: r.bool(12), Due: r.time(13)}})
			return nil
		}, array(ids))
	})
	return leased, err
}
