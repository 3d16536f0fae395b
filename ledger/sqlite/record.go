package sqlite

import (
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/code"
	"github.com/ledgerd/ledgerd/ledger/internal/sqlstore"
)

// recordColumns are the columns of ledger_items i and ledger_backlog b that scanRecord reads. A claim spends much of
// its time on reading columns, so those about the holder of the item are left out.
const (
	readyColumns = itemColumns + `,
 b.priority, b.due_at, b.epoch, b.attempt, b.failures, b.crashes, b.losses, b.alone`
	recordColumns = readyColumns +
		`, b.state, b.reopen, b.cancel, b.locked_by, b.lock_id, b.leased_at, b.started_at, b.expires_at,
 i.failing_since, i.recovered_at, b.renewals, b.usual_priority, b.cancel_reason`
)

func scanRecord(r row) ledger.Record {
	rec := scanReady(r)
	r = r[itemWidth:]
	rec.Outage = ledger.Outage{FailingSince: r.time(16), RecoveredAt: r.time(17)}
	if r[8] == nil {
		rec.Work = nil
		return rec
	}
	w := rec.Work
	w.State, w.Reopen, w.Cancel = code.State(r.int(8)), r.bool(9), r.bool(10)
	w.Agent, w.LockID, w.LeasedAt, w.StartedAt, w.ExpiresAt = r.text(11), r.uuid(12), r.time(13), r.time(14), r.time(15)
	w.Renewals, w.CancelReason = int(r.int(18)), r.text(20)
	if r[19] != nil {
		usual := int16(r.int(19))
		w.Usual = &usual
	}
	return rec
}

// scanReady reads the readyColumns of a ready item.
func scanReady(r row) ledger.Record {
	rec := scanItem(r)
	r = r[itemWidth:]
	rec.Work = &ledger.Work{State: ledger.StateReady, Priority: int16(r.int(0)), Due: r.time(1), Epoch: r.int(2),
		Attempt: r.int(3), Failures: int(r.int(4)), Crashes: int(r.int(5)), Losses: int(r.int(6)), Alone: r.bool(7)}
	return rec
}

// records runs a query of recordColumns and adds the history of the records.
func records(s session, query string, args ...any) ([]ledger.Record, error) {
	var recs []ledger.Record
	err := s.query(query, func(r row) error {
		recs = append(recs, scanRecord(r))
		return nil
	}, args...)
	if err != nil {
		return nil, err
	}
	return recs, addHistory(s, recs)
}

// addHistory adds to records what other rows have: the newest ended attempt, and for recurring items the newest
// period that was completed in this opening.
func addHistory(s session, recs []ledger.Record) error {
	var attempted []int64
	var recurring [][2]int64 // with their opening
	at := make(map[int64]*ledger.Record)
	for i := range recs {
		r := &recs[i]
		// The newest attempt of a leased item has not ended.
		if w := r.Work; w == nil || w.Attempt > r.BaseAttempt+1 ||
			w.Attempt > r.BaseAttempt && w.State != ledger.StateLeased {
			attempted = append(attempted, r.ID)
			at[r.ID] = r
		}
		if r.Every != "" {
			opening := r.Epoch
			if r.Work != nil {
				opening = r.Work.Epoch
			}
			recurring = append(recurring, [2]int64{r.ID, opening})
			at[r.ID] = r
		}
	}
	if len(attempted) > 0 {
		var id int64
		var last sqlstore.LastRow
		dest := append([]any{&id}, last.Dest()...)
		err := s.query(`SELECT a.item_id, `+sqlstore.LastColumns+` FROM json_each(?1) j CROSS JOIN ledger_attempts a
 WHERE a.item_id = j.value AND a.attempt = (SELECT max(attempt) FROM ledger_attempts WHERE item_id = j.value)`, func(r row) error {
			r.scan(dest)
			at[id].Last = last.Last(id, at[id].Kind)
			return nil
		}, array(attempted))
		if err != nil {
			return err
		}
	}
	if len(recurring) == 0 {
		return nil
	}
	return s.query(`SELECT j.value ->> 0, (SELECT max(period) FROM ledger_attempts WHERE item_id = j.value ->> 0 AND epoch = j.value ->> 1
 AND period IS NOT NULL AND outcome IN `+code.Completed+`) FROM json_each(?1) j`, func(r row) error {
		at[r.int(0)].DonePeriod = r.time(1)
		return nil
	}, array(recurring))
}

// load returns the records with these ids, in id order.
func load(s session, ids []int64) ([]ledger.Record, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	return records(s, `SELECT `+recordColumns+` FROM ledger_items i LEFT JOIN ledger_backlog b ON b.item_id = i.id
 WHERE i.id IN (SELECT value FROM json_each(?1)) ORDER BY i.id`, array(ids))
}
