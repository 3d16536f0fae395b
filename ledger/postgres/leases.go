package postgres

import "github.com/ledgerd/ledgerd/ledger/internal/code"

// A claim is one row of ledger_leases. The backlog rows of its items get its lock_id, and stay in the index of ready
// rows: a claim changes no indexed column, so it writes no index (HOT).
//
// A leased item expires at the time in its backlog row, or if that is NULL at the time of its lease. A renewal of all
// items of a lease writes the lease only. Any other renewal writes the rows and marks the lease as split; from then on
// due_at of the lease is no later than the first expiry of its items. So a row has its own expiry only if its lease is
// split.
//
// Only the backlog shows which items are held. If one statement ends all items of a lease, it deletes the lease, else a
// sweep does later. The lock_id is never used again, so a sweep may delete such a lease at any time. Rows of the
// backlog are locked before their leases, unless locked rows are skipped.

const (
	// isReady is the condition of backlog rows that are ready and not leased. coalesce hides the second part from the
	// planner: if all rows were leased when the statistics were taken, it would believe that no row passes.
	isReady = `stage = ` + code.Ready + ` AND coalesce(lock_id IS NULL, false)`

	// filedRows and runningRows are the conditions of rows under a limit that wait for a claim, and that are leased.
	filedRows   = `limit_key IS NOT NULL AND NOT running`
	runningRows = `limit_key IS NOT NULL AND running`

	// workOf are the columns of a ledger.Work, from the backlog row b and its lease l.
	workOf = `b.item_id, b.due_at, l.leased_at, b.started_at, coalesce(b.expires_at, l.expires_at) AS expires_at, b.lock_id, b.attempt, b.epoch,
  CASE WHEN b.lock_id IS NULL THEN b.stage ELSE ` + code.Leased + ` END AS state, b.priority, b.slot, b.failures, b.crashes, b.losses, b.alone, b.reopen, b.cancel,
  l.agent AS locked_by, b.gate, b.limit_key,
  nullif(coalesce(l.renewals, 0) + coalesce(b.renewals, 0), 0) AS renewals, b.usual_priority, b.cancel_reason`

	// work is the backlog with its leases, in the columns of a ledger.Work.
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

	// leased are the leased rows of work.
	leased = `(SELECT ` + workOf + `, l.kind AS kind FROM {{S}}.ledger_leases l` + heldRows + `)`

	// holding is the condition that the agent p holds an item.
	holding = `EXISTS (SELECT FROM {{S}}.ledger_leases l` + heldRows + ` WHERE l.agent = p.agent)`
)
