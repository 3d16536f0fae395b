// Package lending gives leases of a ledger to programs that do not reach its database. They claim, renew, start, end
// and hand back by requests and answers. The package knows no transport: package api brings them over HTTP.
//
// # Tokens
//
// A lease is named by its full token, ID.ATTEMPT.LOCK_ID. It cannot be guessed, so a caller that has it is the one
// to which the item was leased. Each write carries the lock_id, so a lease that was lost ends nothing. A refusal
// names the agent that holds the item now, but only to a caller whose token once named a lease of the item.
//
// # Answers that get lost
//
// A claim whose client has gone before its answer was written is handed back. This counts as no failure. If the
// answer was written and got lost, the next claim of the agent with Resume returns these leases again. The end of a
// lease may be reported twice.
//
// # Waiting
//
// A claim looks for items when it begins, and may then wait. Claims that wait for the same kind stand in one queue,
// and only the first of them looks again: when the ledger hints that items were added or freed, and once a second.
// If it gets some, the next one looks. So a thousand claims that wait for a kind cost one look a second, beside the
// look with which each begins.
package lending
