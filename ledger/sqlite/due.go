package sqlite

import (
	"context"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/code"
)

// Promote implements ledger.Store. The longest overdue kinds come first.
func (s *Store) Promote(ctx context.Context, limit int) (promoted []string, next time.Time, err error) {
	var due []string
	err = s.probe(ctx, func(r session) (err error) {
		due, next, err = waiting(r, s.clock())
		return err
	})
	if err != nil || len(due) == 0 || limit < 1 {
		return nil, next, err
	}
	err = s.write(ctx, false, func(t *turn) (err error) {
		if due, _, err = waiting(t, t.now); err != nil {
			return err
		}
		promoted = nil
		for left := int64(limit); len(due) > 0 && left > 0; due = due[1:] {
			r, err := t.exec(`UPDATE ledger_backlog SET state = `+code.Ready+
				` WHERE item_id IN (SELECT item_id FROM ledger_backlog
 WHERE state = `+code.Waiting+` AND kind = ?1 AND due_at <= ?2 ORDER BY due_at, item_id LIMIT ?3)`, due[0], t.now, left)
			if err != nil {
				return err
			}
			if r.changes > 0 {
				promoted = append(promoted, due[0])
			}
			left -= r.changes
		}
		_, next, err = waiting(t, t.now)
		return err
	})
	if err != nil {
		return nil, time.Time{}, err
	}
	return promoted, next, nil
}

// waiting returns the kinds with waiting items that are due, the longest overdue first, and the earliest due time of
// all waiting items.
func waiting(s session, now time.Time) (due []string, next time.Time, err error) {
	err = s.query(
		`SELECT kind, due_at FROM (SELECT k.kind AS kind, (SELECT min(b.due_at) FROM ledger_backlog b WHERE b.state = `+
			code.Waiting+` AND b.kind = k.kind) AS due_at
 FROM ledger_kinds k) WHERE due_at IS NOT NULL ORDER BY due_at, kind`, func(r row) error {
			at := r.time(1)
			if next.IsZero() {
				next = at
			}
			if !at.After(now) {
				due = append(due, r.text(0))
			}
			return nil
		})
	return due, next, err
}

// LoadExpired implements ledger.Tx. During the grace of the writer it returns nothing: this process has waited long for
// the write lock, and the holders of the leases may have waited for it to renew them.
func (x *tx) LoadExpired(limit int) ([]ledger.Record, error) {
	if x.turn != nil && x.s.w.inGrace() {
		return nil, nil
	}
	if x.session == nil {
		expired := false // look before the write lock is taken: mostly no lease has expired
		err := x.s.readInside(x.turn.ctx, x.s.probes, false, func(r session) (err error) {
			expired, err = exists(r, `SELECT 1 FROM ledger_backlog WHERE state = `+code.Leased+` AND expires_at <= ?1`,
				x.s.clock())
			return err
		})
		if err != nil || !expired {
			return nil, err
		}
	}
	if err := x.begin(); err != nil {
		return nil, err
	}
	return x.leased(`expires_at <= ?1`, limit)
}

// LoadLeased implements ledger.Tx.
func (x *tx) LoadLeased(agent string, limit int) ([]ledger.Record, error) {
	if err := x.begin(); err != nil {
		return nil, err
	}
	// Of one agent, a lease that begins later than now, as after a step of the clock back, is left: its attempt would
	// end before it began.
	return x.leased(`(?3 = '' OR leased_at <= ?1 AND locked_by = ?3)`, limit, agent)
}

// leased loads up to limit leased records, those that expire first at the beginning. In the condition ?1 is the time,
// and args begin with ?3.
func (x *tx) leased(condition string, limit int, args ...any) ([]ledger.Record, error) {
	var ids []int64
	err := x.session.query(`SELECT item_id FROM ledger_backlog WHERE state = `+code.Leased+` AND `+condition+
		` ORDER BY expires_at, item_id LIMIT ?2`, func(r row) error {
		ids = append(ids, r.int(0))
		return nil
	}, append([]any{x.now, limit}, args...)...)
	if err != nil {
		return nil, err
	}
	recs, err := x.Load(ids)
	slices.SortStableFunc(recs, func(a, b ledger.Record) int { return a.Work.ExpiresAt.Compare(b.Work.ExpiresAt) })
	return recs, err
}
