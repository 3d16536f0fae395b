package postgres

import (
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/code"
	"github.com/ledgerd/ledgerd/ledger/internal/sqlstore"
)

// Columns of a record, in the order in which recordRow takes them. The aliases are i items, b backlog,
// a newest attempt, k kinds.
const (
	// doneColumn is the newest period of a recurring item that was completed in this opening.
	doneColumn = `CASE WHEN i.every IS NOT NULL THEN (SELECT max(p.period) FROM {{S}}.ledger_attempts p WHERE p.item_id = i.id AND p.epoch = coalesce(b.epoch, i.epoch) AND p.outcome IN ` + code.Completed + `) END`

	workColumns = `b.state, b.priority, b.due_at, b.epoch, b.attempt, b.failures, b.crashes, b.losses, b.alone, b.reopen, b.cancel, b.locked_by, b.lock_id, b.leased_at, b.started_at, b.expires_at,
 b.renewals, b.usual_priority, b.cancel_reason`

	// outputColumn is the output of the newest attempt that has one.
	outputColumn = `(SELECT o.output FROM {{S}}.ledger_attempts o WHERE o.item_id = i.id AND octet_length(o.output) > 0 ORDER BY o.attempt DESC LIMIT 1)`

	recordColumns = `i.id, i.kind, ` + itemColumns +
		`, i.failing_since, i.recovered_at, ` + doneColumn + `, ` +
		workColumns + `, ` + sqlstore.LastColumns

	// lastAttempt is the newest attempt of i, by the primary key.
	lastAttempt = `LEFT JOIN LATERAL (SELECT n.* FROM {{S}}.ledger_attempts n WHERE n.item_id = i.id ORDER BY n.attempt DESC LIMIT 1) a ON true`

	recordTables = `{{S}}.ledger_items i LEFT JOIN ` + work + ` b ON b.item_id = i.id ` + lastAttempt

	// loadedTables are recordTables for a few ids. LIMIT 1 keeps the planner from a join with the whole backlog where
	// its statistics were taken while the backlog was small.
	loadedTables = `{{S}}.ledger_items i LEFT JOIN LATERAL (
 SELECT ` + workOf + `, b.kind FROM {{S}}.ledger_backlog b` + itsLease + ` WHERE b.item_id = i.id LIMIT 1) b ON true ` + lastAttempt
)

// recordRow reads recordColumns, row after row into the same targets. A record that it returns shares no memory with
// it.
type recordRow struct {
	targets *scanTargets
	item    ledger.Record
	work    ledger.Work
	state   *int16 // nil when there is no row of the backlog
	last    sqlstore.LastRow
}

// records makes a reader of recordColumns, followed by more columns that are never NULL, or are bytes.
func records(more ...any) *recordRow {
	r := &recordRow{}
	i, w := &r.item, &r.work
	r.targets = new(scanTargets).addNotNull(&i.ID, &i.Kind).addNotNull(itemDest(i)...)
	r.targets.add(&i.FailingSince, &i.RecoveredAt, &i.DonePeriod, &r.state, &w.Priority, &w.Due, &w.Epoch,
		&w.Attempt, &w.Failures, &w.Crashes, &w.Losses, &w.Alone, &w.Reopen, &w.Cancel,
		&w.Agent, &w.LockID, &w.LeasedAt, &w.StartedAt, &w.ExpiresAt, &w.Renewals, &w.Usual, &w.CancelReason)
	r.targets.add(r.last.Dest()...).addNotNull(more...)
	return r
}

func (r *recordRow) record(scan scanner) (ledger.Record, error) {
	if err := r.targets.scan(scan); err != nil {
		return ledger.Record{}, err
	}
	rec := r.item
	rec.CreatedAt = rec.CreatedAt.UTC()
	if r.state != nil {
		w := r.work
		w.State = code.State(*r.state)
		rec.Work = &w
	}
	rec.Last = r.last.Last(rec.ID, rec.Kind)
	return rec, nil
}

// recordsWithOutput is a reader of recordColumns followed by outputColumn.
func recordsWithOutput() func(scanner) (ledger.Record, error) {
	var output []byte
	row := records(&output)
	return func(scan scanner) (ledger.Record, error) {
		r, err := row.record(scan)
		r.Output = output
		return r, err
	}
}

// loadedRecords is a reader of recordColumns followed by those of the policy.
func loadedRecords() func(scanner) (ledger.Record, error) {
	var policy sqlstore.PolicyRow
	row := records(policy.Dest()...)
	return func(scan scanner) (ledger.Record, error) {
		r, err := row.record(scan)
		if err != nil {
			return r, err
		}
		k, err := policy.Kind()
		r.Policy = &k
		return r, err
	}
}
