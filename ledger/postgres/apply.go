package postgres

import (
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/code"
)

// Apply implements ledger.Tx: one statement for each sort of change, not for each change.
func (t *tx) Apply(changes []ledger.Change) error {
	var finished, forgotten []int64
	var updated, inserted works
	var ended attempts
	var items itemChanges
	var outages outageChanges
	for i := range changes {
		c := &changes[i]
		have, ok := t.loaded[c.ID]
		if !ok {
			return fmt.Errorf("postgres: a change of item %d, which this transaction has not loaded", c.ID)
		}
		if c.Forget {
			forgotten = append(forgotten, c.ID)
			delete(t.loaded, c.ID)
			continue
		}
		if c.Finish && have.work {
			finished = append(finished, c.ID)
			have.work = false
		}
		if c.Work != nil {
			if have.work {
				updated.add(c.ID, have, c.Work)
			} else {
				inserted.add(c.ID, have, c.Work)
			}
			have.work = true
			t.queued(have.kind, c.Work)
		}
		if c.Attempt != nil {
			ended.add(c.ID, c.Attempt)
		}
		if c.Item != nil {
			items.add(c.ID, c.Item)
			if c.Item.Every != "" {
				t.s.prunes.forget()
			}
		}
		if c.Outage != nil {
			outages.add(c.ID, c.Outage)
		}
		t.loaded[c.ID] = have
	}
	return t.applyAll(finished, forgotten, &updated, &inserted, &ended, &items, &outages)
}

// applyAll sends the statements of the sorts of changes that there are.
func (t *tx) applyAll(finished, forgotten []int64, updated, inserted *works, ended *attempts, items *itemChanges,
	outages *outageChanges) error {
	for _, c := range []struct {
		n        int
		template string
		args     []any
	}{
		{len(finished), `DELETE FROM {{S}}.ledger_backlog WHERE item_id` + listed, []any{finished}},
		{len(items.id), updateItems, items.args()},
		{len(outages.id), updateOutages, []any{outages.id, outages.failing, outages.recovered}},
		{len(updated.id), updateWorks, updated.args()},
		{len(inserted.id), insertWorks, inserted.args()[:len(writtenTypes)]},
		{len(ended.id), insertAttempts, ended.args(t.stamp())},
		{len(forgotten), `DELETE FROM {{S}}.ledger_backlog WHERE item_id` + listed, []any{forgotten}},
		{len(forgotten), `DELETE FROM {{S}}.ledger_attempts WHERE item_id` + listed, []any{forgotten}},
		{len(forgotten), `DELETE FROM {{S}}.ledger_items WHERE id` + listed, []any{forgotten}},
	} {
		if c.n > 0 {
			if err := t.later(c.template, c.args, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// works are rows of the backlog, one slice for each column. A leased item keeps its lease: no rule changes one.
type works struct {
	id, epoch, attempt            []int64
	stage, priority, slot         []int16
	failures, crashes, losses     []int32
	alone, reopen, cancel, leased []bool
	kind                          []string
	due                           []*time.Time
	usual                         []*int16
	reason                        []string
}

func (c *works) add(id int64, item loaded, w *ledger.Work) {
	stage, leased := w.State, w.State == ledger.StateLeased
	if leased {
		stage = ledger.StateReady
	}
	c.id, c.epoch, c.attempt = append(c.id, id), append(c.epoch, w.Epoch), append(c.attempt, w.Attempt)
	c.stage, c.priority = append(c.stage, code.OfState(stage)), append(c.priority, w.Priority)
	c.slot, c.failures = append(c.slot, int16(item.slot)), append(c.failures, int32(w.Failures))
	c.crashes, c.losses = append(c.crashes, int32(w.Crashes)), append(c.losses, int32(w.Losses))
	c.alone, c.reopen, c.cancel = append(c.alone, w.Alone), append(c.reopen, w.Reopen), append(c.cancel, w.Cancel)
	c.leased, c.kind, c.due = append(c.leased, leased), append(c.kind, item.kind), append(c.due, timeOrNull(w.Due))
	c.usual, c.reason = append(c.usual, w.Usual), append(c.reason, w.CancelReason)
}

func (c *works) args() []any {
	return []any{c.id, c.due, c.attempt, c.epoch, c.stage, c.priority, c.slot, c.failures, c.crashes, c.losses, c.alone,
		c.reopen, c.cancel, c.kind, c.usual, c.leased, c.reason}
}

var (
	writtenTypes = []string{"bigint", "timestamptz", "bigint", "bigint", "smallint", "smallint", "smallint", "int", "int",
		"int", "boolean", "boolean", "boolean", "text", "smallint"}
	writtenWork = `item_id, due_at, attempt, epoch, stage, priority, slot, failures, crashes, losses, alone, reopen, cancel, kind, usual_priority`

	updateWorks = `UPDATE {{S}}.ledger_backlog b SET due_at = w.due_at, started_at = CASE WHEN w.leased THEN b.started_at END,
 expires_at = CASE WHEN w.leased THEN b.expires_at END, lock_id = CASE WHEN w.leased THEN b.lock_id END, running = w.leased AND b.running,
 attempt = w.attempt, epoch = w.epoch, stage = w.stage, priority = w.priority, failures = w.failures, crashes = w.crashes, losses = w.losses,
 alone = w.alone, reopen = w.reopen, cancel = w.cancel,
 gate = CASE WHEN w.leased THEN b.gate ELSE ` + code.Free + ` END, limit_key = CASE WHEN w.leased THEN b.limit_key END,
 usual_priority = w.usual_priority, cancel_reason = nullif(w.cancel_reason, ''),
 renewals = CASE WHEN w.leased THEN b.renewals END
 FROM ` + unnest(slices.Concat(writtenTypes, []string{"boolean", "text"})...) + ` w(` + writtenWork + `, leased, cancel_reason)
 WHERE b.item_id = w.item_id`

	// insertWorks writes neither a lease nor a reason to cancel: what has one has a row already.
	insertWorks = `INSERT INTO {{S}}.ledger_backlog (` + writtenWork + `) SELECT * FROM ` + unnest(writtenTypes...)
)

// attempts are rows of ledger_attempts, one slice for each column.
type attempts struct {
	id, attempt, epoch                     []int64
	outcome                                []int16
	final                                  []bool
	dueAt, leasedAt, startedAt, period     []*time.Time
	renewals                               []int32
	lockID                                 []string
	kind, agent, worker, code, error, log_ []string
	cause                                  []string
	output                                 [][]byte
}

func (c *attempts) add(id int64, a *ledger.Attempt) {
	c.id, c.attempt, c.epoch = append(c.id, id), append(c.attempt, a.Attempt), append(c.epoch, a.Epoch)
	c.outcome, c.final = append(c.outcome, code.OfOutcome(a.Outcome)), append(c.final, a.Final)
	c.leasedAt, c.period = append(c.leasedAt, timeOrNull(a.LeasedAt)), append(c.period, timeOrNull(a.Period))
	c.lockID, c.kind = append(c.lockID, a.LockID), append(c.kind, a.Kind)
	c.agent, c.worker = append(c.agent, a.Agent), append(c.worker, a.Worker)
	c.dueAt, c.startedAt = append(c.dueAt, timeOrNull(a.DueAt)), append(c.startedAt, timeOrNull(a.StartedAt))
	c.renewals, c.cause = append(c.renewals, int32(a.Renewals)), append(c.cause, a.Cause)
	c.code, c.error = append(c.code, a.Code), append(c.error, a.Error)
	c.log_, c.output = append(c.log_, a.Log), append(c.output, a.Output)
}

func (c *attempts) args(stamp *time.Time) []any {
	return []any{stamp, c.id, c.leasedAt, c.period, c.attempt, c.epoch, c.outcome, c.final, c.lockID, c.kind, c.agent,
		c.worker, c.code, c.error, c.log_, c.output, c.cause, c.dueAt, c.startedAt, c.renewals}
}

const insertAttempts = `INSERT INTO {{S}}.ledger_attempts (item_id, leased_at, finished_at, period, attempt, epoch, outcome, final, lock_id, kind, agent, worker, code, error, log, output, cause, due_at, started_at, renewals)
 SELECT item_id, leased_at, coalesce($1::timestamptz, now()), period, attempt, epoch, outcome, final, nullif(lock_id, '')::uuid, kind, agent,
 nullif(worker, ''), nullif(code, ''), nullif(error, ''), nullif(log, ''), nullif(output, ''), nullif(cause, ''), due_at, started_at, nullif(renewals, 0)
 FROM unnest($2::bigint[], $3::timestamptz[], $4::timestamptz[], $5::bigint[], $6::bigint[], $7::smallint[], $8::boolean[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[],
 $14::text[], $15::text[], $16::bytea[], $17::text[], $18::timestamptz[], $19::timestamptz[], $20::int[]) a(item_id, leased_at, period, attempt, epoch, outcome, final, lock_id, kind, agent, worker, code, error, log, output, cause, due_at, started_at, renewals)`

// itemChanges are rewritten columns of ledger_items, one slice for each.
type itemChanges struct {
	id, epoch                []int64
	fingerprint, every, zone []string
	trace                    []string
	payload                  [][]byte
	checksum                 []int32 // 0: as before
}

func (c *itemChanges) add(id int64, i *ledger.ItemChange) {
	c.id, c.epoch, c.fingerprint = append(c.id, id), append(c.epoch, i.Epoch), append(c.fingerprint, i.Fingerprint)
	c.every, c.zone, c.payload = append(c.every, i.Every), append(c.zone, i.Zone), append(c.payload, i.Payload)
	c.trace, c.checksum = append(c.trace, i.Trace), append(c.checksum, int32(i.Checksum))
}

func (c *itemChanges) args() []any {
	return []any{c.id, c.epoch, c.fingerprint, c.every, c.zone, c.payload, c.trace, c.checksum}
}

var updateItems = `UPDATE {{S}}.ledger_items i SET epoch = c.epoch, fingerprint = c.fingerprint, every = nullif(c.every, ''), zone = nullif(c.zone, ''), payload = c.payload,
 trace = nullif(c.trace, ''), checksum = coalesce(nullif(c.checksum, 0), i.checksum)
 FROM ` + unnest("bigint", "bigint", "text", "text", "text", "bytea", "text", "integer") + ` c(id, epoch, fingerprint, every, zone, payload, trace, checksum) WHERE i.id = c.id`

// outageChanges are outages of items, one slice for each column.
type outageChanges struct {
	id                 []int64
	failing, recovered []*time.Time
}

func (c *outageChanges) add(id int64, o *ledger.Outage) {
	c.id, c.failing = append(c.id, id), append(c.failing, timeOrNull(o.FailingSince))
	c.recovered = append(c.recovered, timeOrNull(o.RecoveredAt))
}

var updateOutages = `UPDATE {{S}}.ledger_items i SET failing_since = c.failing_since, recovered_at = c.recovered_at
 FROM ` + unnest("bigint", "timestamptz", "timestamptz") + ` c(id, failing_since, recovered_at) WHERE i.id = c.id`
