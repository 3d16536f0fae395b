package postgres

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/ledger"
)

// Columns of a record, in the order in which the scan functions below take them. The aliases
// are i items, b backlog, a newest attempt, k kinds.
const (
	itemColumns = `i.id, i.kind, i.scope, i.key, i.fingerprint, i.payload, coalesce(i.shard_key, ''), i.slot, coalesce(i.every, ''), coalesce(i.zone, ''),
 coalesce(i.source, ''), i.epoch, i.base_attempt, i.created_at, coalesce(array_to_json(i.resources)::text, '')` // database/sql has no arrays
	// doneColumns are the newest period of a recurring item that was completed, and the opening in which it was.
	doneColumns = `CASE WHEN i.every IS NOT NULL THEN (SELECT max(p.period) FROM {{S}}.ledger_attempts p WHERE p.item_id = i.id AND p.outcome IN (0, 1)) END,
 CASE WHEN i.every IS NOT NULL THEN (SELECT p.epoch FROM {{S}}.ledger_attempts p WHERE p.item_id = i.id AND p.period IS NOT NULL AND p.outcome IN (0, 1) ORDER BY p.period DESC, p.epoch DESC LIMIT 1) END`
	workColumns = `b.state, b.priority, b.due_at, b.epoch, b.attempt, b.failures, b.crashes, b.losses, b.alone, b.reopen, b.cancel, b.locked_by, b.lock_id, b.leased_at, b.started_at, b.expires_at,
 CASE WHEN b.limit_key IS NULL THEN b.gate ELSE 0::smallint END, b.passed_at`
	// lastColumns begin with the attempt, NULL when there is none.
	lastColumns = `a.attempt, a.agent, a.lock_id, a.worker, a.epoch, a.period, a.leased_at, a.finished_at, a.outcome, a.final, a.code, a.error`
	kindColumns = `k.kind, k.plugin, k.input, k.on_lost, k.max_failures, k.max_crashes, k.max_lost, k.backoff_base, k.backoff_cap, k.timeout, k.keep, k.paused, k.definition, k.limits`

	// wholeKindColumns are those of a kind beside kindColumns, which the records of its items need not.
	wholeKindColumns = kindColumns + `, k.config, k.defaults`

	// outputColumn is that of the newest attempt that has one.
	outputColumn = `(SELECT o.output FROM {{S}}.ledger_attempts o WHERE o.item_id = i.id AND octet_length(o.output) > 0 ORDER BY o.attempt DESC LIMIT 1)`

	recordColumns = itemColumns + `, ` + doneColumns + `, ` + workColumns + `, ` + lastColumns

	// lastAttempt is the newest attempt of i, by the primary key.
	lastAttempt = `LEFT JOIN LATERAL (SELECT n.* FROM {{S}}.ledger_attempts n WHERE n.item_id = i.id ORDER BY n.attempt DESC LIMIT 1) a ON true`

	recordTables = `{{S}}.ledger_items i LEFT JOIN {{S}}.ledger_backlog b ON b.item_id = i.id ` + lastAttempt

	// loadedTables are recordTables for a few ids. The limit keeps the planner from a join with the
	// whole backlog, for the few rows that it may have had once.
	loadedTables = `{{S}}.ledger_items i LEFT JOIN LATERAL (SELECT b.* FROM {{S}}.ledger_backlog b WHERE b.item_id = i.id LIMIT 1) b ON true ` + lastAttempt
)

// itemRow takes itemColumns and doneColumns.
type itemRow struct {
	r         ledger.Record
	resources jsonNamesOf
	done      doneRow
}

// doneRow takes doneColumns.
type doneRow struct {
	period *time.Time
	epoch  *int64
}

func (t *doneRow) dest() []any { return []any{&t.period, &t.epoch} }

func (t *doneRow) tell(r *ledger.Record) {
	if r.DonePeriod = utc(t.period); t.epoch != nil {
		r.DoneEpoch = *t.epoch
	}
}

func (t *itemRow) dest() []any {
	r := &t.r
	return []any{&r.ID, &r.Kind, &r.Scope, &r.Key, &r.Fingerprint, &r.Payload, &r.ShardKey, &r.Slot, &r.Every, &r.Zone,
		&r.Source, &r.Epoch, &r.BaseAttempt, &r.CreatedAt, &t.resources, &t.done.period, &t.done.epoch}
}

func (t *itemRow) record() ledger.Record {
	t.r.CreatedAt = t.r.CreatedAt.UTC()
	t.r.DonePeriod, t.r.DoneEpoch = time.Time{}, 0
	t.done.tell(&t.r)
	t.r.Resources = t.resources
	return t.r
}

// workRow takes workColumns; all are nil when there is no row.
type workRow struct {
	state, priority                *int16
	due                            *time.Time
	epoch, attempt                 *int64
	failures, crashes, losses      *int
	alone, reopen, cancel          *bool
	agent                          *string
	lockID                         *uuid.UUID
	leasedAt, startedAt, expiresAt *time.Time
	gate                           *int16
	passedAt                       *time.Time
}

func (t *workRow) dest() []any {
	return []any{&t.state, &t.priority, &t.due, &t.epoch, &t.attempt, &t.failures, &t.crashes, &t.losses, &t.alone, &t.reopen, &t.cancel,
		&t.agent, &t.lockID, &t.leasedAt, &t.startedAt, &t.expiresAt, &t.gate, &t.passedAt}
}

func (t *workRow) work() *ledger.Work {
	if t.state == nil {
		return nil
	}
	w := &ledger.Work{State: states[*t.state], Priority: *t.priority, Due: utc(t.due), Epoch: *t.epoch, Attempt: *t.attempt,
		Failures: *t.failures, Crashes: *t.crashes, Losses: *t.losses, Alone: *t.alone, Reopen: *t.reopen, Cancel: *t.cancel,
		LeasedAt: utc(t.leasedAt), StartedAt: utc(t.startedAt), ExpiresAt: utc(t.expiresAt), Gated: *t.gate > 0, PassedAt: utc(t.passedAt)}
	if t.agent != nil {
		w.Agent = *t.agent
	}
	if t.lockID != nil {
		w.LockID = *t.lockID
	}
	return w
}

// lastRow takes lastColumns.
type lastRow struct {
	attempt                    *int64
	agent, worker, code, error *string
	lockID                     *uuid.UUID
	epoch                      *int64
	period, leasedAt, finished *time.Time
	outcome                    *int16
	final                      *bool
}

func (t *lastRow) dest() []any {
	return []any{&t.attempt, &t.agent, &t.lockID, &t.worker, &t.epoch, &t.period, &t.leasedAt, &t.finished, &t.outcome, &t.final, &t.code, &t.error}
}

func (t *lastRow) last(id int64, kind string) *ledger.Attempt {
	if t.attempt == nil {
		return nil
	}
	a := &ledger.Attempt{ItemID: id, Attempt: *t.attempt, Kind: kind, Agent: *t.agent, Worker: text(t.worker), Epoch: *t.epoch, Period: utc(t.period),
		LeasedAt: utc(t.leasedAt), FinishedAt: utc(t.finished), Outcome: ledger.Outcomes[*t.outcome], Final: *t.final, Code: text(t.code), Error: text(t.error)}
	if t.lockID != nil {
		a.LockID = t.lockID.String()
	}
	return a
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// kindRow takes kindColumns.
type kindRow struct {
	k                          ledger.Kind
	input, limits              string
	onLost                     int16
	base, limit, timeout, keep int64 // µs
}

func (t *kindRow) dest() []any {
	k := &t.k
	return []any{&k.Name, &k.Plugin, &t.input, &t.onLost, &k.MaxFailures, &k.MaxCrashes, &k.MaxLost, &t.base, &t.limit, &t.timeout, &t.keep, &k.Paused, &k.Definition, &t.limits}
}

// wholeKindRow takes wholeKindColumns.
type wholeKindRow struct {
	kindRow
	config, defaults string
}

func (t *wholeKindRow) dest() []any { return append(t.kindRow.dest(), &t.config, &t.defaults) }

func (t *wholeKindRow) kind() (ledger.Kind, error) {
	k, err := t.kindRow.kind()
	if k.Config, k.Defaults = t.config, nil; err == nil && t.defaults != "" {
		err = json.Unmarshal([]byte(t.defaults), &k.Defaults)
	}
	return k, err
}

func (t *kindRow) kind() (ledger.Kind, error) {
	k := t.k
	k.Input, k.Limits = ledger.Input{}, ledger.Limits{}
	if t.onLost == 1 {
		k.OnLost = ledger.OnLostDoubt
	}
	k.Backoff = ledger.Backoff{Base: time.Duration(t.base) * time.Microsecond, Cap: time.Duration(t.limit) * time.Microsecond}
	k.Timeout, k.Keep = time.Duration(t.timeout)*time.Microsecond, time.Duration(t.keep)*time.Microsecond
	err := json.Unmarshal([]byte(t.input), &k.Input)
	if err == nil && t.limits != "" {
		err = json.Unmarshal([]byte(t.limits), &k.Limits)
	}
	return k, err
}

// recordScanner reads recordColumns, row after row into the same place: what it returns shares
// nothing with it.
type recordScanner struct {
	i    itemRow
	w    workRow
	l    lastRow
	k    kindRow
	dest []any
}

// records is a reader of recordColumns.
func records() func(scanner) (ledger.Record, error) {
	var s recordScanner
	s.dest = slices.Concat(s.i.dest(), s.w.dest(), s.l.dest())
	return s.record
}

// recordsWithOutput is a reader of recordColumns followed by outputColumn.
func recordsWithOutput() func(scanner) (ledger.Record, error) {
	var s recordScanner
	var output []byte
	s.dest = append(slices.Concat(s.i.dest(), s.w.dest(), s.l.dest()), &output)
	return func(scan scanner) (ledger.Record, error) {
		r, err := s.record(scan)
		r.Output = output
		return r, err
	}
}

func (s *recordScanner) record(scan scanner) (ledger.Record, error) {
	if err := scan(s.dest...); err != nil {
		return ledger.Record{}, err
	}
	r := s.i.record()
	r.Work, r.Last = s.w.work(), s.l.last(r.ID, r.Kind)
	return r, nil
}

// loadedRecords is a reader of recordColumns followed by kindColumns.
func loadedRecords() func(scanner) (ledger.Record, error) {
	var s recordScanner
	s.dest = slices.Concat(s.i.dest(), s.w.dest(), s.l.dest(), s.k.dest())
	return func(scan scanner) (ledger.Record, error) {
		r, err := s.record(scan)
		if err == nil {
			r.Policy, err = s.k.kind()
		}
		return r, err
	}
}

// attemptColumns are those of an attempt as a whole.
const attemptColumns = `a.item_id, a.kind, a.log, a.output, ` + lastColumns

// attemptRows is a reader of attemptColumns.
func attemptRows() func(scanner) (ledger.Attempt, error) {
	var l lastRow
	var id int64
	var kind string
	var log *string
	var output []byte
	dest := append([]any{&id, &kind, &log, &output}, l.dest()...)
	return func(scan scanner) (ledger.Attempt, error) {
		if err := scan(dest...); err != nil {
			return ledger.Attempt{}, err
		}
		a := l.last(id, kind)
		a.Log, a.Output = text(log), output
		return *a, nil
	}
}

// jsonDefaults is how the defaults of a kind are kept; "" is none.
func jsonDefaults(d ledger.Defaults) (string, error) {
	if len(d) == 0 {
		return "", nil
	}
	b, err := json.Marshal(d)
	return string(b), err
}
