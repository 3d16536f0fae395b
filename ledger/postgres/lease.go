package postgres

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/code"
)

// Writes under a lease. The token decides: a row that has another, or none, is not touched.
// There is no condition on the state: the schema ties the token to it.

// The templates of Complete: $1 ids in ascending order, $2 their tokens. If an item has two tokens, only the last one
// is used; the rules end the other lease. A completed round is deleted from the backlog. Rows that have to be reopened
// or cancelled, and rows of failing items, are left to the rules.
var (
	// heldBy is the condition that a backlog row has its item in $1 and its token at the same place of $2; $1 ascends.
	// It is no join, because the planner may begin a join at either side: if the table was small when the statement was
	// planned, it would read the whole table for ever.
	heldBy = `b.item_id` + listed + ` AND b.lock_id = ($2::uuid[])[width_bucket(b.item_id, $1::bigint[])]`

	// fast is the condition of rows of the backlog that Complete ends. In its first attempt an item has no outage, so
	// ledger_items is not read.
	fast = `NOT b.reopen AND NOT b.cancel
 AND (b.attempt = 1 OR (SELECT i.failing_since FROM {{S}}.ledger_items i WHERE i.id = b.item_id) IS NULL)`

	// completed ends items of several leases. Each row looks its lease up: a join could begin with all leases.
	completed = `WITH d AS (
 DELETE FROM {{S}}.ledger_backlog b WHERE ` + heldBy + ` AND ` + fast + `
 RETURNING b.item_id, b.attempt, b.epoch, b.lock_id, b.kind, b.due_at, b.started_at, b.renewals),
e AS (SELECT b.item_id, b.attempt, b.epoch, b.lock_id, b.kind, b.due_at, b.started_at, b.renewals, l.renewals AS of_lease, l.agent, l.leased_at FROM d b` + itsLease + `)`

	// completedOne ends items of the lease $2. If these were all of its items, it deletes the lease, too.
	completedOne = `WITH l AS MATERIALIZED (SELECT agent, leased_at, renewals FROM {{S}}.ledger_leases WHERE lock_id = $2),
d AS (
 DELETE FROM {{S}}.ledger_backlog b WHERE b.item_id` + listed + ` AND b.lock_id = $2 AND ` + fast + `
 RETURNING b.item_id, b.attempt, b.epoch, b.kind, b.due_at, b.started_at, b.renewals),
g AS (DELETE FROM {{S}}.ledger_leases WHERE lock_id = $2 AND cardinality(items) = (SELECT count(*) FROM d)),
e AS (SELECT d.*, $2 AS lock_id, (SELECT agent FROM l) AS agent, (SELECT leased_at FROM l) AS leased_at, (SELECT renewals FROM l) AS of_lease FROM d)`

	times = `due_at, started_at, nullif(coalesce(of_lease, 0) + coalesce(renewals, 0), 0)`

	// insertPlain records the ends: $3 outcome and $4 worker of all items.
	insertPlain = `
INSERT INTO {{S}}.ledger_attempts (item_id, leased_at, finished_at, attempt, epoch, outcome, final, lock_id, kind, agent, worker, due_at, started_at, renewals)
SELECT item_id, leased_at, (SELECT {{NOW}}), attempt, epoch, $3, true, lock_id, kind, agent, nullif($4, ''), ` + times + ` FROM e RETURNING item_id`

	// insertFull records the ends: $3 outcomes, $4 workers, $5 codes, $6 errors, $7 logs, $8 outputs.
	insertFull = `
INSERT INTO {{S}}.ledger_attempts (item_id, leased_at, finished_at, attempt, epoch, outcome, final, lock_id, kind, agent, worker, code, error, log, output, due_at, started_at, renewals)
SELECT item_id, leased_at, (SELECT {{NOW}}), attempt, epoch, ($3::smallint[])[n], true, lock_id, kind, agent,
 nullif(($4::text[])[n], ''), nullif(($5::text[])[n], ''), nullif(($6::text[])[n], ''), nullif(($7::text[])[n], ''), nullif(($8::bytea[])[n], ''), ` + times + `
FROM (SELECT *, width_bucket(item_id, $1::bigint[]) AS n FROM e) e RETURNING item_id`

	completePlain, completePlainOne = completed + insertPlain, completedOne + insertPlain
	completeFull, completeFullOne   = completed + insertFull, completedOne + insertFull
)

// maxOutputs is the size in bytes of outputs, logs and errors after which a statement takes no further completion.
const maxOutputs = 16 << 20

// Complete implements ledger.Store.
func (s *Store) Complete(ctx context.Context, conn ledger.Conn, c []ledger.Completion) ([]int64, error) {
	c = inOrder(c)
	var landed []int64
	for len(c) > 0 {
		n := fitting(c)
		ids, err := s.complete(ctx, conn, c[:n])
		landed = append(landed, ids...)
		if err != nil {
			return landed, err
		}
		c = c[n:]
	}
	return landed, nil
}

// inOrder sorts completions by item.
func inOrder(c []ledger.Completion) []ledger.Completion {
	byItem := func(a, b ledger.Completion) int { return cmp.Compare(a.ItemID, b.ItemID) }
	if !slices.IsSortedFunc(c, byItem) {
		c = slices.Clone(c)
		slices.SortFunc(c, byItem)
	}
	return c
}

// fitting returns how many of these completions one statement takes.
func fitting(c []ledger.Completion) int {
	n, size := 0, 0
	for n < len(c) && size < maxOutputs {
		size += len(c[n].Output) + len(c[n].Log) + len(c[n].Error)
		n++
	}
	return n
}

func (s *Store) complete(ctx context.Context, conn ledger.Conn, c []ledger.Completion) ([]int64, error) {
	template, args := completion(c)
	var landed []int64
	run := func(ss session) error {
		landed = make([]int64, 0, len(c))
		return ss.query(template, args, appendID(&landed))
	}
	var err error
	if conn != nil {
		err = s.in(ctx, conn, run)
	} else {
		err = s.write(ctx, run)
	}
	return landed, err
}

// appendID adds the id that a row consists of to a list.
func appendID(ids *[]int64) func(scanner) error {
	var id int64
	return func(scan scanner) error {
		err := scan(&id)
		*ids = append(*ids, id)
		return err
	}
}

// CompleteAndClaim implements ledger.Store. The statements of both are one round trip, and for the server one
// transaction. The end may have to wait for a row that somebody has locked; the claim behind it waits for nothing.
func (s *Store) CompleteAndClaim(ctx context.Context, c []ledger.Completion, g ledger.Grant) (landed []int64,
	got ledger.Claimed, err error) {
	c = inOrder(c)
	laned, known := s.laned.known(g.Kind)
	if !known || laned || g.Resume || len(g.Items) > 0 || fitting(c) < len(c) {
		landed, err = s.Complete(ctx, nil, c)
		return landed, ledger.Claimed{More: true}, err
	}
	var next *claim
	err = s.run(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		s.drop(next)
		next, landed = s.newClaim(g), make([]int64, 0, len(c))
		end, endArgs := completion(c)
		begin, beginArgs := next.statement()
		err := pipe{conn, s.prepares(conn), s.described}.run(ctx, []statement{
			{s.render(end), endArgs, appendID(&landed)}, {s.render(begin), beginArgs, next.row}})
		if err != nil {
			return committing(err)
		}
		next.addHistory(ctx, s, conn)
		return nil
	})
	if err != nil {
		s.drop(next)
		return nil, ledger.Claimed{}, err
	}
	got, err = s.claimed(ctx, next, nil, false)
	return landed, got, err
}

// completion returns the cheapest statement for the batch, with its arguments.
func completion(c []ledger.Completion) (template string, args []any) {
	ids, locks := make([]int64, len(c)), make([]pgtype.UUID, len(c))
	plain, one := true, true
	for i, e := range c {
		ids[i], locks[i] = e.ItemID, pgUUID(e.LockID)
		one = one && e.LockID == c[0].LockID
		plain = plain && e.Outcome == c[0].Outcome && e.Worker == c[0].Worker && e.Code == "" && e.Error == "" &&
			e.Log == "" && len(e.Output) == 0
	}
	template, lock := completeFull, any(locks)
	switch {
	case plain && one:
		template, lock = completePlainOne, locks[0]
	case plain:
		template = completePlain
	case one:
		template, lock = completeFullOne, locks[0]
	}
	if plain {
		return template, []any{ids, lock, code.OfOutcome(c[0].Outcome), c[0].Worker}
	}
	outcomes, outputs := make([]int16, len(c)), make([][]byte, len(c))
	workers, codes := make([]string, len(c)), make([]string, len(c))
	errors, logs := make([]string, len(c)), make([]string, len(c))
	for i, e := range c {
		outcomes[i], workers[i], codes[i] = code.OfOutcome(e.Outcome), e.Worker, e.Code
		errors[i], logs[i], outputs[i] = e.Error, e.Log, e.Output
	}
	return template, []any{ids, lock, outcomes, workers, codes, errors, logs, outputs}
}

// references returns the ids and tokens of leases as columns, sorted by id: rows are locked in that order everywhere.
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
	// renewWhole renews leases that are not split, if all items that they still hold are in $1 and $2: $3 ttl, $4 the
	// lock_ids. It skips locked leases, because their items are just being expired.
	renewWhole = `WITH clock AS MATERIALIZED (SELECT {{NOW}} + $3::interval AS until),
l AS MATERIALIZED (
 SELECT lock_id, items FROM {{S}}.ledger_leases WHERE lock_id = ANY((SELECT $4::uuid[])::uuid[]) AND NOT split ORDER BY lock_id FOR UPDATE SKIP LOCKED),
r AS MATERIALIZED (
 SELECT l.lock_id, b.item_id, b.cancel, bool_and(coalesce(($1::bigint[])[n] = b.item_id AND ($2::uuid[])[n] = l.lock_id, false)) OVER (PARTITION BY l.lock_id) AS whole
 FROM l` + heldRows + ` CROSS JOIN LATERAL (SELECT width_bucket(b.item_id, $1::bigint[]) AS n) n),
u AS (
 UPDATE {{S}}.ledger_leases SET expires_at = (SELECT until FROM clock), due_at = (SELECT until FROM clock), renewals = renewals + 1
 WHERE lock_id = ANY(ARRAY(SELECT DISTINCT lock_id FROM r WHERE whole)))
SELECT item_id, lock_id, (SELECT until FROM clock), cancel FROM r WHERE whole`

	// split marks the leases of the rows u as split, since these rows have got an expiry of their own.
	split = `
s AS (
 UPDATE {{S}}.ledger_leases SET split = true, due_at = least(due_at, (SELECT until FROM clock))
 WHERE lock_id = ANY(ARRAY(SELECT DISTINCT lock_id FROM u)) AND (NOT split OR due_at > (SELECT until FROM clock)))`

	// renewRows renews item by item: $3 ttl, $4 the lock_ids. It skips locked leases and rows: an item that a long
	// transaction is finishing must not hold up the others.
	renewRows = `WITH clock AS MATERIALIZED (SELECT {{NOW}} + $3::interval AS until),
l AS MATERIALIZED (
 SELECT lock_id FROM {{S}}.ledger_leases WHERE lock_id = ANY((SELECT $4::uuid[])::uuid[]) FOR UPDATE SKIP LOCKED),
u AS (
 UPDATE {{S}}.ledger_backlog SET expires_at = (SELECT until FROM clock), renewals = coalesce(renewals, 0) + 1 WHERE item_id = ANY(ARRAY(
  SELECT b.item_id FROM {{S}}.ledger_backlog b WHERE ` + heldBy + ` AND b.lock_id = ANY(ARRAY(SELECT lock_id FROM l)) ORDER BY b.item_id FOR UPDATE SKIP LOCKED))
 RETURNING item_id, lock_id, expires_at, cancel),` + split + `
SELECT * FROM u`

	// startTemplate marks items as started, and renews them: $3 ttl.
	startTemplate = `WITH clock AS MATERIALIZED (SELECT now, now + $3::interval AS until FROM (SELECT {{NOW}} AS now) c),
u AS (
 UPDATE {{S}}.ledger_backlog SET started_at = (SELECT now FROM clock), expires_at = (SELECT until FROM clock) WHERE item_id = ANY(ARRAY(
  SELECT b.item_id FROM {{S}}.ledger_backlog b WHERE ` + heldBy + ` AND NOT b.cancel ORDER BY b.item_id FOR UPDATE))
 RETURNING item_id, lock_id),` + split + `
SELECT item_id FROM u`
)

// Renew implements ledger.Store.
func (s *Store) Renew(ctx context.Context, ttl time.Duration, leases []ledger.LeaseRef) ([]ledger.Renewal, error) {
	ids, locks := references(leases)
	out, err := s.renewals(ctx, s.write, renewWhole, []any{ids, locks, ttl, distinct(locks)})
	if err != nil || len(out) == len(leases) {
		return out, err
	}
	renewed := make(map[ledger.LeaseRef]bool, len(out))
	for _, r := range out {
		renewed[r.LeaseRef] = true
	}
	leases = slices.DeleteFunc(slices.Clone(leases), func(l ledger.LeaseRef) bool { return renewed[l] })
	ids, locks = references(leases)
	single, err := s.renewals(ctx, s.write, renewRows, []any{ids, locks, ttl, distinct(locks)})
	return append(out, single...), err
}

// distinct returns each token once.
func distinct(locks []pgtype.UUID) []pgtype.UUID {
	locks = slices.Clone(locks)
	slices.SortFunc(locks, func(a, b pgtype.UUID) int { return bytes.Compare(a.Bytes[:], b.Bytes[:]) })
	return slices.Compact(locks)
}

// Holders implements ledger.Store.
func (s *Store) Holders(ctx context.Context, ids []int64) ([]ledger.Renewal, error) {
	return s.renewals(ctx, s.lookUp, `SELECT b.item_id, b.lock_id, coalesce(b.expires_at, l.expires_at), b.cancel
 FROM {{S}}.ledger_backlog b`+itsLease+` WHERE b.item_id`+listed+` AND b.lock_id IS NOT NULL`, []any{ids})
}

// Leased implements ledger.Store. The limit keeps the planner from a join with all items.
func (s *Store) Leased(ctx context.Context, ids []int64) ([]ledger.Record, error) {
	var out []ledger.Record
	err := s.lookUp(ctx, func(ss session) error {
		out = nil
		return ss.query(`SELECT b.item_id, i.kind, i.scope, i.key, coalesce(i.every, ''), coalesce(i.zone, ''),
 b.epoch, b.attempt, l.agent, b.lock_id, l.leased_at, coalesce(b.expires_at, l.expires_at), b.alone, b.due_at
 FROM {{S}}.ledger_backlog b`+itsLease+` CROSS JOIN LATERAL (SELECT i.* FROM {{S}}.ledger_items i WHERE i.id = b.item_id LIMIT 1) i
 WHERE b.item_id`+listed+` AND b.lock_id IS NOT NULL`, []any{ids}, func(scan scanner) error {
			r, w := ledger.Record{}, &ledger.Work{State: ledger.StateLeased}
			err := scan(&r.ID, &r.Kind, &r.Scope, &r.Key, &r.Every, &r.Zone, &w.Epoch, &w.Attempt, &w.Agent, &w.LockID,
				&w.LeasedAt, &w.ExpiresAt, &w.Alone, &w.Due)
			w.LeasedAt, w.ExpiresAt, w.Due = w.LeasedAt.UTC(), w.ExpiresAt.UTC(), w.Due.UTC()
			r.Work = w
			out = append(out, r)
			return err
		})
	})
	return out, err
}

// renewals runs a template, by s.write or s.lookUp, that returns item_id, lock_id, expires_at and cancel.
func (s *Store) renewals(ctx context.Context, run func(context.Context, func(session) error) error, template string,
	args []any) ([]ledger.Renewal, error) {
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
		return ss.query(startTemplate, []any{ids, locks, ttl}, appendID(&started))
	})
	return started, err
}
