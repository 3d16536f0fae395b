// Package lending leases items of a ledger to programs that cannot reach its database. They claim, renew, start, end
// and release by requests and answers. The package knows no transport: package api serves them over HTTP.
//
// # Tokens
//
// The full token ID.ATTEMPT.LOCK_ID names a lease. It cannot be guessed, so its owner is the program that got the
// item. Each write carries the lock_id, so a lost lease ends nothing. A refusal names the present holder of the item,
// but only to a caller whose token once named a lease of the item.
//
// # Lost answers
//
// If the client of a claim has gone before its answer was written, the items are handed back. This counts as no
// failure. If the answer was written and got lost, the agent's next claim with Resume returns these leases again. The
// end of a lease may be reported twice.
//
// # Waiting
//
// All claims that wait for a kind are in one queue, and only the first of them looks for items: when the ledger hints
// that items were added or freed, and once a second. If it gets items, the next claim looks. A claim that comes looks
// first, unless a claim that waits has looked within the last second. So a thousand waiting claims of a kind cost about
// one look a second.
package lending
