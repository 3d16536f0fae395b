package postgres

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ledgerd/ledgerd/ledger"
)

// Apply implements ledger.Tx: one statement for each sort of change, not for each change.
func (t *tx) Apply(changes []ledger.Change) error {
	var finished, forgotten, freed []int64
	var updated, inserted works
	var ended attemptColumnsOf
	var items itemChanges
	for i := range changes {
		c := &changes[i]
		have, ok := t.loaded[c.ID]
		if !ok {
			return fmt.Errorf("postgres: a change of item %d, which this transaction has not loaded", c.ID)
		}
		if have.holds && (c.Finish || c.Work != nil && c.Work.State != ledger.StateLeased) {
			freed = append(freed, c.ID)
			have.holds = false
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
		t.loaded[c.ID] = have
	}
	return t.applyAll(finished, freed, forgotten, &updated, &inserted, &ended, &items)
}

func (t *tx) applyAll(finished, freed, forgotten []int64, updated, inserted *works, ended *attemptColumnsOf, items *itemChanges) error {
	for _, c := range []struct {
		n        int
		template string
		args     []any
	}{
		{len(finished), `DELETE FROM {{S}}.ledger_backlog WHERE item_id` + listed, []any{finished}},
		{len(items.gated), markGatedItems, []any{items.gated}},
		{len(items.id), updateItems, items.args()},
		{len(updated.id), updateWorks, updated.args()}, // which looks at the resources of the items
		{len(inserted.id), insertWorks, inserted.args()},
		{len(freed), `DELETE FROM {{S}}.ledger_held WHERE item_id` + listed, []any{freed}},
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

// works are rows of the backlog by column.
type works struct {
	id, epoch, attempt                  []int64
	state, priority, slot               []int16
	failures, crashes, losses           []int32
	alone, reopen, cancel, gated        []bool
	kind, agent                         []string
	lockID                              []pgtype.UUID
	due, leasedAt, startedAt, expiresAt []*time.Time
	passedAt                            []*time.Time
}

func (c *works) add(id int64, of loaded, w *ledger.Work) {
	c.id, c.epoch, c.attempt = append(c.id, id), append(c.epoch, w.Epoch), append(c.attempt, w.Attempt)
	c.state, c.priority, c.slot = append(c.state, stateCode(w.State)), append(c.priority, w.Priority), append(c.slot, int16(of.slot))
	c.failures, c.crashes, c.losses = append(c.failures, int32(w.Failures)), append(c.crashes, int32(w.Crashes)), append(c.losses, int32(w.Losses))
	c.alone, c.reopen, c.cancel = append(c.alone, w.Alone), append(c.reopen, w.Reopen), append(c.cancel, w.Cancel)
	c.kind, c.agent, c.lockID = append(c.kind, of.kind), append(c.agent, w.Agent), append(c.lockID, pgUUID(w.LockID))
	c.due, c.leasedAt = append(c.due, timeOrNull(w.Due)), append(c.leasedAt, timeOrNull(w.LeasedAt))
	c.gated, c.passedAt = append(c.gated, w.Gated), append(c.passedAt, timeOrNull(w.PassedAt))
	c.startedAt, c.expiresAt = append(c.startedAt, timeOrNull(w.StartedAt)), append(c.expiresAt, timeOrNull(w.ExpiresAt))
}

func (c *works) args() []any {
	return []any{c.id, c.due, c.leasedAt, c.startedAt, c.expiresAt, c.lockID, c.attempt, c.epoch, c.state, c.priority,
		c.slot, c.failures, c.crashes, c.losses, c.alone, c.reopen, c.cancel, c.kind, c.agent, c.gated, c.passedAt}
}

var (
	workTuple = unnest("bigint", "timestamptz", "timestamptz", "timestamptz", "timestamptz", "uuid", "bigint", "bigint", "smallint", "smallint",
		"smallint", "int", "int", "int", "boolean", "boolean", "boolean", "text", "text", "boolean", "timestamptz") + `
 w(item_id, due_at, leased_at, started_at, expires_at, lock_id, attempt, epoch, state, priority, slot, failures, crashes, losses, alone, reopen, cancel, kind, locked_by, gated, passed_at)`

	// gateOfWork is the gate of a row: that of its item, unless what is leased goes on without.
	gateOfWork = `CASE WHEN w.gated THEN (SELECT least(cardinality(i.resources), 2) FROM {{S}}.ledger_items i WHERE i.id = w.item_id) ELSE 0 END`

	updateWorks = `UPDATE {{S}}.ledger_backlog b SET due_at = w.due_at, leased_at = w.leased_at, started_at = w.started_at, expires_at = w.expires_at, lock_id = w.lock_id,
 attempt = w.attempt, epoch = w.epoch, state = w.state, priority = w.priority, failures = w.failures, crashes = w.crashes, losses = w.losses,
 alone = w.alone, reopen = w.reopen, cancel = w.cancel, locked_by = nullif(w.locked_by, ''),
 gate = CASE WHEN w.state = 2 AND b.limit_key IS NOT NULL THEN b.gate ELSE ` + gateOfWork + ` END, limit_key = CASE WHEN w.state = 2 THEN b.limit_key END,
 passed_at = w.passed_at, blocked_on = NULL
 FROM ` + workTuple + ` WHERE b.item_id = w.item_id`

	insertWorks = `INSERT INTO {{S}}.ledger_backlog (item_id, due_at, leased_at, started_at, expires_at, lock_id, attempt, epoch, state, priority, slot,
 failures, crashes, losses, alone, reopen, cancel, kind, locked_by, gate, passed_at)
 SELECT item_id, due_at, leased_at, started_at, expires_at, lock_id, attempt, epoch, state, priority, slot,
 failures, crashes, losses, alone, reopen, cancel, kind, nullif(locked_by, ''), ` + gateOfWork + `, passed_at FROM ` + workTuple
)

// attemptColumnsOf are rows of attempts by column.
type attemptColumnsOf struct {
	id, attempt, epoch                     []int64
	outcome                                []int16
	final                                  []bool
	leasedAt, period                       []*time.Time
	lockID                                 []string
	kind, agent, worker, code, error, log_ []string
	output                                 [][]byte
}

func (c *attemptColumnsOf) add(id int64, a *ledger.Attempt) {
	c.id, c.attempt, c.epoch = append(c.id, id), append(c.attempt, a.Attempt), append(c.epoch, a.Epoch)
	c.outcome, c.final = append(c.outcome, outcomeCode(a.Outcome)), append(c.final, a.Final)
	c.leasedAt, c.period = append(c.leasedAt, timeOrNull(a.LeasedAt)), append(c.period, timeOrNull(a.Period))
	c.lockID, c.kind, c.agent, c.worker = append(c.lockID, a.LockID), append(c.kind, a.Kind), append(c.agent, a.Agent), append(c.worker, a.Worker)
	c.code, c.error, c.log_, c.output = append(c.code, a.Code), append(c.error, a.Error), append(c.log_, a.Log), append(c.output, a.Output)
}

func (c *attemptColumnsOf) args(stamp *time.Time) []any {
	return []any{stamp, c.id, c.leasedAt, c.period, c.attempt, c.epoch, c.outcome, c.final, c.lockID, c.kind, c.agent, c.worker, c.code, c.error, c.log_, c.output}
}

const insertAttempts = `INSERT INTO {{S}}.ledger_attempts (item_id, leased_at, finished_at, period, attempt, epoch, outcome, final, lock_id, kind, agent, worker, code, error, log, output)
 SELECT item_id, leased_at, coalesce($1::timestamptz, now()), period, attempt, epoch, outcome, final, nullif(lock_id, '')::uuid, kind, agent,
 nullif(worker, ''), nullif(code, ''), nullif(error, ''), nullif(log, ''), nullif(output, '')
 FROM unnest($2::bigint[], $3::timestamptz[], $4::timestamptz[], $5::bigint[], $6::bigint[], $7::smallint[], $8::boolean[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[],
 $14::text[], $15::text[], $16::bytea[]) a(item_id, leased_at, period, attempt, epoch, outcome, final, lock_id, kind, agent, worker, code, error, log, output)`

// itemChanges are rewrites of items by column.
type itemChanges struct {
	id, epoch                []int64
	fingerprint, every, zone []string
	resources                []string // JSON
	payload                  [][]byte
	gated                    []int64 // those that need resources
}

func (c *itemChanges) add(id int64, i *ledger.ItemChange) {
	c.id, c.epoch, c.fingerprint = append(c.id, id), append(c.epoch, i.Epoch), append(c.fingerprint, i.Fingerprint)
	c.every, c.zone, c.payload = append(c.every, i.Every), append(c.zone, i.Zone), append(c.payload, i.Payload)
	if c.resources = append(c.resources, jsonNames(i.Resources)); len(i.Resources) > 0 {
		c.gated = append(c.gated, id)
	}
}

func (c *itemChanges) args() []any {
	return []any{c.id, c.epoch, c.fingerprint, c.every, c.zone, c.payload, c.resources}
}

var updateItems = `UPDATE {{S}}.ledger_items i SET epoch = c.epoch, fingerprint = c.fingerprint, every = nullif(c.every, ''), zone = nullif(c.zone, ''), payload = c.payload,
 resources = ` + namesOf("c.resources") + `
 FROM ` + unnest("bigint", "bigint", "text", "text", "text", "bytea", "text") + ` c(id, epoch, fingerprint, every, zone, payload, resources) WHERE i.id = c.id`
