package sqlite

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/ledger"
)

// Codes of states in the backlog and of outcomes: positions in these lists.
var (
	states   = []ledger.State{ledger.StateWaiting, ledger.StateReady, ledger.StateLeased, ledger.StateDead, ledger.StateDoubt}
	outcomes = ledger.Outcomes
)

func stateCode(s ledger.State) int64     { return int64(slices.Index(states, s)) } // −1 breaks a CHECK
func outcomeCode(o ledger.Outcome) int64 { return int64(slices.Index(outcomes, o)) }

// recordColumns are what scanRecord reads, of ledger_items i and ledger_backlog b: reading a
// column is what a claim spends much of its time on, so it leaves out those that say who holds
// the item.
const (
	readyColumns = `i.id, i.kind, i.scope, i.key, i.fingerprint, i.payload, i.shard_key, i.slot, i.every, i.zone, i.source, i.epoch, i.base_attempt, i.created_at,
 b.priority, b.due_at, b.epoch, b.attempt, b.failures, b.crashes, b.losses, b.alone`
	recordColumns = readyColumns + `, b.state, b.reopen, b.cancel, b.locked_by, b.lock_id, b.leased_at, b.started_at, b.expires_at,
 i.resources, iif(b.limit_key IS NULL, b.gate, 0), b.passed_at`
)

func scanRecord(r row) ledger.Record {
	rec := scanReady(r)
	rec.Resources = names(r, 30)
	if r[22] == nil {
		rec.Work = nil
		return rec
	}
	w := rec.Work
	w.State, w.Reopen, w.Cancel = states[r.int(22)], r.bool(23), r.bool(24)
	w.Agent, w.LockID, w.LeasedAt, w.StartedAt, w.ExpiresAt = r.text(25), r.uuid(26), r.time(27), r.time(28), r.time(29)
	w.Gated, w.PassedAt = r.int(31) > 0, r.time(32)
	return rec
}

// scanReady reads readyColumns of an item that is ready.
func scanReady(r row) ledger.Record {
	return ledger.Record{ID: r.int(0), Identity: ledger.Identity{Kind: r.text(1), Scope: r.text(2), Key: r.text(3)},
		Fingerprint: r.text(4), Payload: r.bytes(5), ShardKey: r.text(6), Slot: int(r.int(7)), Every: r.text(8), Zone: r.text(9),
		Source: r.text(10), Epoch: r.int(11), BaseAttempt: r.int(12), CreatedAt: r.time(13),
		Work: &ledger.Work{State: ledger.StateReady, Priority: int16(r.int(14)), Due: r.time(15), Epoch: r.int(16), Attempt: r.int(17),
			Failures: int(r.int(18)), Crashes: int(r.int(19)), Losses: int(r.int(20)), Alone: r.bool(21)}}
}

// attemptColumns are what scanAttempt reads, of ledger_attempts; log and output come last.
const (
	lastColumns    = `item_id, attempt, kind, agent, lock_id, worker, epoch, period, leased_at, finished_at, outcome, final, code, error`
	attemptColumns = lastColumns + `, log, output`
)

func scanAttempt(r row) ledger.Attempt {
	a := ledger.Attempt{ItemID: r.int(0), Attempt: r.int(1), Kind: r.text(2), Agent: r.text(3), Worker: r.text(5), Epoch: r.int(6),
		Period: r.time(7), LeasedAt: r.time(8), FinishedAt: r.time(9), Outcome: outcomes[r.int(10)], Final: r.bool(11), Code: r.text(12), Error: r.text(13)}
	if id := r.uuid(4); id != uuid.Nil {
		a.LockID = id.String()
	}
	if len(r) > 14 {
		a.Log, a.Output = r.text(14), r.bytes(15)
	}
	return a
}

// records runs a query of recordColumns and adds the history of what it finds.
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

// addHistory reads what records have beside their rows: the newest attempt of those that have
// ended any, and the newest completed period, with its opening, of those that recur.
func addHistory(s session, recs []ledger.Record) error {
	var attempted, recurring []int64
	at := make(map[int64]*ledger.Record)
	for i := range recs {
		r := &recs[i]
		if w := r.Work; w == nil || w.Attempt > r.BaseAttempt+1 || w.Attempt > r.BaseAttempt && w.State != ledger.StateLeased {
			attempted = append(attempted, r.ID)
			at[r.ID] = r
		}
		if r.Every != "" {
			recurring = append(recurring, r.ID)
			at[r.ID] = r
		}
	}
	if len(attempted) > 0 {
		err := s.query(`SELECT `+lastColumns+` FROM json_each(?1) j CROSS JOIN ledger_attempts
 WHERE item_id = j.value AND attempt = (SELECT max(attempt) FROM ledger_attempts WHERE item_id = j.value)`, func(r row) error {
			a := scanAttempt(r)
			at[a.ItemID].Last = &a
			return nil
		}, array(attempted))
		if err != nil {
			return err
		}
	}
	if len(recurring) == 0 {
		return nil
	}
	return s.query(`SELECT item_id, max(period), max(epoch) FROM ledger_attempts
 WHERE (item_id, period) IN (SELECT j.value, (SELECT max(period) FROM ledger_attempts WHERE item_id = j.value AND period IS NOT NULL AND outcome IN (0, 1)) FROM json_each(?1) j)
 AND period IS NOT NULL AND outcome IN (0, 1) GROUP BY item_id`, func(r row) error {
		at[r.int(0)].DonePeriod, at[r.int(0)].DoneEpoch = r.time(1), r.int(2)
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

// attempts returns the attempts of items, by id and number.
func attempts(s session, ids []int64) ([]ledger.Attempt, error) {
	var all []ledger.Attempt
	err := s.query(`SELECT `+attemptColumns+` FROM ledger_attempts
 WHERE item_id IN (SELECT value FROM json_each(?1)) ORDER BY item_id, attempt`, func(r row) error {
		all = append(all, scanAttempt(r))
		return nil
	}, array(ids))
	return all, err
}

const kindColumns = `kind, plugin, input, on_lost, max_failures, max_crashes, max_lost, backoff_base, backoff_cap, timeout, keep, paused, definition, limits, config, defaults`

func scanKind(r row) (ledger.Kind, error) {
	k := ledger.Kind{Name: r.text(0), Plugin: r.text(1), MaxFailures: int(r.int(4)), MaxCrashes: int(r.int(5)), MaxLost: int(r.int(6)),
		Backoff: ledger.Backoff{Base: duration(r, 7), Cap: duration(r, 8)}, Timeout: duration(r, 9), Keep: duration(r, 10), Paused: r.bool(11), Definition: r.text(12),
		Config: r.text(14)}
	if r.bool(3) {
		k.OnLost = ledger.OnLostDoubt
	}
	if err := json.Unmarshal([]byte(r.text(2)), &k.Input); err != nil {
		return k, fmt.Errorf("sqlite: input of kind %s: %w", k.Name, err)
	}
	if limits := r.text(13); limits != "" {
		if err := json.Unmarshal([]byte(limits), &k.Limits); err != nil {
			return k, fmt.Errorf("sqlite: limits of kind %s: %w", k.Name, err)
		}
	}
	if defaults := r.text(15); defaults != "" {
		if err := json.Unmarshal([]byte(defaults), &k.Defaults); err != nil {
			return k, fmt.Errorf("sqlite: defaults of kind %s: %w", k.Name, err)
		}
	}
	return k, nil
}

func duration(r row, i int) time.Duration { return time.Duration(r.int(i)) * time.Microsecond }

// kinds returns all kinds, by name.
func kinds(s session) ([]ledger.Kind, error) {
	return scanKinds(s, `SELECT `+kindColumns+` FROM ledger_kinds ORDER BY kind`)
}

// kind returns one kind; its zero policy if there is no row.
func kind(s session, name string) (ledger.Kind, error) {
	all, err := scanKinds(s, `SELECT `+kindColumns+` FROM ledger_kinds WHERE kind = ?1`, name)
	if err != nil || len(all) == 0 {
		return ledger.Kind{Name: name}, err
	}
	return all[0], nil
}

func scanKinds(s session, query string, args ...any) ([]ledger.Kind, error) {
	var all []ledger.Kind
	err := s.query(query, func(r row) error {
		k, err := scanKind(r)
		all = append(all, k)
		return err
	}, args...)
	return all, err
}

// jsonDefaults is how the defaults of a kind are kept; "" is none.
func jsonDefaults(d ledger.Defaults) (string, error) {
	if len(d) == 0 {
		return "", nil
	}
	b, err := json.Marshal(d)
	return string(b), err
}
