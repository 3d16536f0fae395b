package postgres

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ledgerd/ledgerd/ledger"
)

// Writes under a lease. The token decides: a row that has another, or none, is not touched.
// There is no condition on the state: the schema ties the token to it.

// The templates of Complete: $1 ids in order, $2 their tokens. A round that was completed leaves
// the backlog; a row that is to be reopened or cancelled, or holds resources, is for the rules to end.
var (
	// $3 outcome and $4 worker of all of them.
	completePlain = `WITH d AS (
 DELETE FROM {{S}}.ledger_backlog b USING ` + unnest("bigint", "uuid") + ` f(item_id, lock_id)
 WHERE b.item_id = f.item_id AND b.lock_id = f.lock_id AND NOT b.reopen AND NOT b.cancel AND (b.gate = 0 OR b.limit_key IS NOT NULL)
 RETURNING b.item_id, b.leased_at, b.attempt, b.epoch, b.lock_id, b.kind, b.locked_by)
INSERT INTO {{S}}.ledger_attempts (item_id, leased_at, finished_at, attempt, epoch, outcome, final, lock_id, kind, agent, worker)
SELECT item_id, leased_at, (SELECT {{NOW}}), attempt, epoch, $3, true, lock_id, kind, locked_by, nullif($4, '') FROM d RETURNING item_id`

	// $3 outcomes, $4 workers, $5 codes, $6 errors, $7 logs, $8 outputs.
	completeFull = `WITH d AS (
 DELETE FROM {{S}}.ledger_backlog b
 USING ` + unnest("bigint", "uuid", "smallint", "text", "text", "text", "text", "bytea") + ` f(item_id, lock_id, outcome, worker, code, error, log, output)
 WHERE b.item_id = f.item_id AND b.lock_id = f.lock_id AND NOT b.reopen AND NOT b.cancel AND (b.gate = 0 OR b.limit_key IS NOT NULL)
 RETURNING b.item_id, b.leased_at, b.attempt, b.epoch, b.lock_id, b.kind, b.locked_by, f.outcome, f.worker, f.code, f.error, f.log, f.output)
INSERT INTO {{S}}.ledger_attempts (item_id, leased_at, finished_at, attempt, epoch, outcome, final, lock_id, kind, agent, worker, code, error, log, output)
SELECT item_id, leased_at, (SELECT {{NOW}}), attempt, epoch, outcome, true, lock_id, kind, locked_by, nullif(worker, ''), nullif(code, ''), nullif(error, ''), nullif(log, ''), nullif(output, '')
FROM d RETURNING item_id`
)

// maxOutputs bounds the outputs and logs of one statement.
const maxOutputs = 16 << 20

// Complete implements ledger.Store.
func (s *Store) Complete(ctx context.Context, conn ledger.Conn, c []ledger.Completion) ([]int64, error) {
	byItem := func(a, b ledger.Completion) int { return cmp.Compare(a.ItemID, b.ItemID) }
	if !slices.IsSortedFunc(c, byItem) {
		c = slices.Clone(c)
		slices.SortFunc(c, byItem)
	}
	var landed []int64
	for len(c) > 0 {
		n, size := 0, 0
		for n < len(c) && size < maxOutputs {
			size += len(c[n].Output) + len(c[n].Log) + len(c[n].Error)
			n++
		}
		ids, err := s.complete(ctx, conn, c[:n])
		landed = append(landed, ids...)
		if err != nil {
			return landed, err
		}
		c = c[n:]
	}
	return landed, nil
}

func (s *Store) complete(ctx context.Context, conn ledger.Conn, c []ledger.Completion) ([]int64, error) {
	template, args := completion(c)
	var landed []int64
	run := func(ss session) error {
		landed = make([]int64, 0, len(c))
		var id int64
		return ss.query(template, args, func(scan scanner) error {
			err := scan(&id)
			landed = append(landed, id)
			return err
		})
	}
	var err error
	if conn != nil {
		err = s.in(ctx, conn, run)
	} else {
		err = s.write(ctx, run)
	}
	return landed, err
}

// completion is the statement that fits the batch.
func completion(c []ledger.Completion) (template string, args []any) {
	ids, locks := make([]int64, len(c)), make([]pgtype.UUID, len(c))
	plain := true
	for i, e := range c {
		ids[i], locks[i] = e.ItemID, pgUUID(e.LockID)
		plain = plain && e.Outcome == c[0].Outcome && e.Worker == c[0].Worker && e.Code == "" && e.Error == "" && e.Log == "" && len(e.Output) == 0
	}
	if plain {
		return completePlain, []any{ids, locks, outcomeCode(c[0].Outcome), c[0].Worker}
	}
	outcomes, outputs := make([]int16, len(c)), make([][]byte, len(c))
	workers, codes, errors, logs := make([]string, len(c)), make([]string, len(c)), make([]string, len(c)), make([]string, len(c))
	for i, e := range c {
		outcomes[i], workers[i], codes[i], errors[i], logs[i], outputs[i] = outcomeCode(e.Outcome), e.Worker, e.Code, e.Error, e.Log, e.Output
	}
	return completeFull, []any{ids, locks, outcomes, workers, codes, errors, logs, outputs}
}

// columns of lease references, sorted by id: rows are locked in that order everywhere.
func references(leases []ledger.LeaseRef) (ids []int64, locks []pgtype.UUID) {
	leases = slices.Clone(leases)
	slices.SortFunc(leases, func(a, b ledger.LeaseRef) int { return cmp.Compare(a.ItemID, b.ItemID) })
	ids, locks = make([]int64, len(leases)), make([]pgtype.UUID, len(leases))
	for i, l := range leases {
		ids[i], locks[i] = l.ItemID, pgUUID(l.LockID)
	}
	return ids, locks
}

var (
	// renewTemplate passes over rows that somebody else has locked: one lease that is being
	// finished in a long transaction must not hold up the others.
	renewTemplate = `UPDATE {{S}}.ledger_backlog SET expires_at = {{NOW}} + $3::interval WHERE item_id = ANY(ARRAY(
  SELECT b.item_id FROM ` + unnest("bigint", "uuid") + ` f(item_id, lock_id) JOIN {{S}}.ledger_backlog b ON b.item_id = f.item_id AND b.lock_id = f.lock_id
  ORDER BY b.item_id FOR UPDATE OF b SKIP LOCKED))
 RETURNING item_id, lock_id, expires_at, cancel`

	startTemplate = `UPDATE {{S}}.ledger_backlog SET started_at = {{NOW}}, expires_at = {{NOW}} + $3::interval WHERE item_id = ANY(ARRAY(
  SELECT b.item_id FROM ` + unnest("bigint", "uuid") + ` f(item_id, lock_id) JOIN {{S}}.ledger_backlog b ON b.item_id = f.item_id AND b.lock_id = f.lock_id
  WHERE NOT b.cancel ORDER BY b.item_id FOR UPDATE OF b))
 RETURNING item_id`
)

// Renew implements ledger.Store.
func (s *Store) Renew(ctx context.Context, ttl time.Duration, leases []ledger.LeaseRef) ([]ledger.Renewal, error) {
	ids, locks := references(leases)
	return s.renewals(ctx, s.write, renewTemplate, []any{ids, locks, ttl})
}

// Holders implements ledger.Store.
func (s *Store) Holders(ctx context.Context, ids []int64) ([]ledger.Renewal, error) {
	return s.renewals(ctx, s.read, `SELECT item_id, lock_id, expires_at, cancel FROM {{S}}.ledger_backlog WHERE item_id`+listed+` AND lock_id IS NOT NULL`, []any{ids})
}

func (s *Store) renewals(ctx context.Context, run func(context.Context, func(session) error) error, template string, args []any) ([]ledger.Renewal, error) {
	var out []ledger.Renewal
	err := run(ctx, func(ss session) error {
		out = nil
		return ss.query(template, args, func(scan scanner) error {
			var r ledger.Renewal
			err := scan(&r.ItemID, &r.LockID, &r.ExpiresAt, &r.Cancel)
			r.ExpiresAt = r.ExpiresAt.UTC()
			out = append(out, r)
			return err
		})
	})
	return out, err
}

// Start implements ledger.Store.
func (s *Store) Start(ctx context.Context, ttl time.Duration, leases []ledger.LeaseRef) ([]int64, error) {
	ids, locks := references(leases)
	var started []int64
	err := s.write(ctx, func(ss session) error {
		started = nil
		return ss.query(startTemplate, []any{ids, locks, ttl}, func(scan scanner) error {
			var id int64
			err := scan(&id)
			started = append(started, id)
			return err
		})
	})
	return started, err
}
