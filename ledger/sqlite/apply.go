package sqlite

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/code"
)

var (
	upsertBacklog = newBulk(
		`INSERT INTO ledger_backlog (item_id, kind, slot, state, priority, due_at, epoch, attempt, failures, crashes, losses,
  alone, reopen, cancel, locked_by, lock_id, leased_at, started_at, expires_at, usual_priority, cancel_reason)
 SELECT i.id, i.kind, i.slot, v.column2, v.column3, v.column4, v.column5, v.column6, v.column7, v.column8, v.column9,
  v.column10, v.column11, v.column12, v.column13, v.column14, v.column15, v.column16, v.column17,
  v.column18, v.column19 FROM (`, 19, `) v CROSS JOIN ledger_items i ON i.id = v.column1 WHERE true
 ON CONFLICT (item_id) DO UPDATE SET state = excluded.state, priority = excluded.priority, due_at = excluded.due_at, epoch = excluded.epoch,
  attempt = excluded.attempt, failures = excluded.failures, crashes = excluded.crashes, losses = excluded.losses, alone = excluded.alone,
  reopen = excluded.reopen, cancel = excluded.cancel, locked_by = excluded.locked_by, lock_id = excluded.lock_id,
  leased_at = excluded.leased_at, started_at = excluded.started_at, expires_at = excluded.expires_at,
  gate = iif(excluded.state = `+code.Leased+`, gate, `+code.Free+`), limit_key = iif(excluded.state = `+code.Leased+`, limit_key, NULL),
  usual_priority = excluded.usual_priority, cancel_reason = excluded.cancel_reason,
  renewals = iif(excluded.state = `+code.Leased+`, renewals, NULL)`)
	insertAttempts = newBulk(
		`INSERT INTO ledger_attempts (item_id, attempt, kind, agent, lock_id, worker, epoch, period, leased_at, finished_at, outcome, final, code, error, log, output, cause, due_at, started_at, renewals)`, 20, ``)
	updateItems = newBulk(
		`UPDATE ledger_items SET fingerprint = v.column2, payload = CAST(v.column3 AS BLOB), every = v.column4, zone = v.column5, epoch = v.column6, trace = v.column7, checksum = coalesce(v.column8, checksum) FROM (`, 8,
		`) v WHERE id = v.column1`)
	updateOutages = newBulk(`UPDATE ledger_items SET failing_since = v.column2, recovered_at = v.column3 FROM (`, 3,
		`) v WHERE id = v.column1`)
)

// Apply implements ledger.Tx. It writes one sort of change after the other, each with as few statements as possible.
func (x *tx) Apply(changes []ledger.Change) error {
	if len(changes) == 0 {
		return nil
	}
	if err := x.begin(); err != nil {
		return err
	}
	var finished, forgotten []int64
	var work, attempts, items, outages []*ledger.Change
	for i := range changes {
		c := &changes[i]
		if c.Forget {
			forgotten = append(forgotten, c.ID)
			continue
		}
		if c.Finish {
			finished = append(finished, c.ID)
		}
		if c.Work != nil {
			work = append(work, c)
		}
		if c.Attempt != nil {
			attempts = append(attempts, c)
		}
		if c.Item != nil {
			items = append(items, c)
		}
		if c.Outage != nil {
			outages = append(outages, c)
		}
	}
	for _, step := range []func() error{
		func() error { return remove(x.session, "ledger_backlog WHERE item_id", finished) },
		func() error { return x.putItems(items) },
		func() error { return x.putOutages(outages) },
		func() error { return x.putWork(work) },
		func() error { return x.putAttempts(attempts) },
		func() error { return remove(x.session, "ledger_backlog WHERE item_id", forgotten) },
		func() error { return remove(x.session, "ledger_attempts WHERE item_id", forgotten) },
		func() error { return remove(x.session, "ledger_items WHERE id", forgotten) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes rows with these ids. rows is a table and its column of ids: "TABLE WHERE COLUMN".
func remove(s session, rows string, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := s.exec("DELETE FROM "+rows+" IN (SELECT value FROM json_each(?1))", array(ids))
	return err
}

func (x *tx) putWork(changes []*ledger.Change) error {
	return upsertBacklog.exec(x.session, len(changes), func(list []any, i int) []any {
		w := changes[i].Work
		var usual any
		if w.Usual != nil {
			usual = *w.Usual
		}
		return append(list, changes[i].ID, code.OfState(w.State), w.Priority, w.Due, w.Epoch, w.Attempt, w.Failures,
			w.Crashes, w.Losses, w.Alone, w.Reopen, w.Cancel, null(w.Agent), w.LockID, w.LeasedAt, w.StartedAt, w.ExpiresAt,
			usual, null(w.CancelReason))
	})
}

func (x *tx) putAttempts(changes []*ledger.Change) error {
	var bad error
	err := insertAttempts.exec(x.session, len(changes), func(list []any, i int) []any {
		a := changes[i].Attempt
		var token uuid.UUID
		if a.LockID != "" {
			var err error
			if token, err = uuid.Parse(a.LockID); err != nil {
				bad = fmt.Errorf("sqlite: token of item %d: %w", a.ItemID, err)
			}
		}
		return append(list, changes[i].ID, a.Attempt, a.Kind, a.Agent, token, null(a.Worker), a.Epoch, a.Period,
			a.LeasedAt, x.now, code.OfOutcome(a.Outcome), a.Final, null(a.Code), null(a.Error), null(a.Log), a.Output,
			null(a.Cause), a.DueAt, a.StartedAt, null(a.Renewals))
	})
	if bad != nil {
		return bad
	}
	return err
}

func (x *tx) putItems(changes []*ledger.Change) error {
	return updateItems.exec(x.session, len(changes), func(list []any, i int) []any {
		c := changes[i].Item
		if c.Every != "" { // a recurring item is pruned by other rules
			x.s.pruned.Clear()
		}
		return append(list, changes[i].ID, c.Fingerprint, blob(c.Payload), null(c.Every), null(c.Zone), c.Epoch,
			null(c.Trace), null(int64(int32(c.Checksum))))
	})
}

func (x *tx) putOutages(changes []*ledger.Change) error {
	return updateOutages.exec(x.session, len(changes), func(list []any, i int) []any {
		o := changes[i].Outage
		return append(list, changes[i].ID, o.FailingSince, o.RecoveredAt)
	})
}
