package postgres

import "github.com/ledgerd/ledgerd/ledger/internal/code"

// A claim is one row of ledger_leases. A row of the backlog that it holds has its lock_id, and stays in the index of
// what is ready: a claim changes no column that an index has, so it writes no index (HOT).
//
// A leased item expires at the time in its row of the backlog, else at the time of its lease. A renewal of all that a
// lease holds writes the lease alone. Any other writes the rows, and marks the lease as split; from then on its
// due_at is no later than the first of its expiries. So no row has an expiry of its own unless its lease is split.
//
// Only the backlog tells what is held. A lease whose items are all gone is deleted by their end, if one statement
// ends them all, else by a sweep. Nothing can be leased again under its lock_id, so a sweep may delete it at any time.
// Rows of the backlog are locked before their leases, unless those that others have locked are passed over.

const (
	// isReady is the condition of rows of the backlog that are ready, and not leased. The latter is hidden: where all was
	// leased when the statistics were taken, the planner would believe that nothing passes it.
	isReady = `stage = ` + code.Ready + ` AND coalesce(lock_id IS NULL, false)`

	// filedRows and runningRows are conditions of rows that are counted under a limit: of what waits for a claim, and
	// of what is leased.
	filedRows   = `limit_key IS NOT NULL AND NOT running`
	runningRows = `limit_key IS NOT NULL AND running`

	// workOf are the columns of the backlog as the rules know it, of a row b with its lease l.
	workOf = `b.item_id, b.due_at, l.leased_at, b.started_at, coalesce(b.expires_at, l.expires_at) AS expires_at, b.lock_id, b.attempt, b.epoch,
  CASE WHEN b.lock_id IS NULL THEN b.stage ELSE ` + code.Leased + ` END AS state, b.priority, b.slot, b.failures, b.crashes, b.losses, b.alone, b.reopen, b.cancel,
  l.agent AS locked_by, b.gate, b.limit_key,
  nullif(coalesce(l.renewals, 0) + coalesce(b.renewals, 0), 0) AS renewals, b.usual_priority, b.cancel_reason`

	// work is the backlog as the rules know it.
	work = `(SELECT ` + workOf + `, b.kind FROM {{S}}.ledger_backlog b LEFT JOIN {{S}}.ledger_leases l ON l.lock_id = b.lock_id)`

	// itsLease is the lease l of a row b, behind it in a FROM. OFFSET keeps the planner from beginning with all leases,
	// and from reading them all for each row, where they were few when it planned.
	itsLease = ` LEFT JOIN LATERAL (
  SELECT l.agent, l.leased_at, l.expires_at, l.renewals FROM {{S}}.ledger_leases l WHERE l.lock_id = b.lock_id OFFSET 0) l ON true`

	// heldRows are the rows b of the backlog that a lease l holds, behind it in a FROM. OFFSET keeps the planner from
	// joining the table as a whole.
	heldRows = ` CROSS JOIN LATERAL unnest(l.items) h(id) CROSS JOIN LATERAL (
  SELECT b.* FROM {{S}}.ledger_backlog b WHERE b.item_id = h.id AND b.lock_id = l.lock_id OFFSET 0) b`

	// leaseOfRows makes the lease of rows c: $2 agent, $3 lock_id, $4 now, $5 ttl, $6 kind.
	leaseOfRows = `l AS (INSERT INTO {{S}}.ledger_leases (lock_id, kind, agent, leased_at, expires_at, due_at, items)
 SELECT $3, $6, $2, $4, $4::timestamptz + $5::interval, $4::timestamptz + $5::interval, array_agg(item_id) FROM c HAVING count(*) > 0)`

	// leased is what is leased of the backlog, as the rules know it.
	leased = `(SELECT ` + workOf + `, l.kind AS kind FROM {{S}}.ledger_leases l` + heldRows + `)`
)
