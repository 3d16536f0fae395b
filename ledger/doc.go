// Package ledger keeps items of work and lends each one to a single agent at a time.
//
// An item is identified by (kind, scope, key) and is added once, however often it is given.
// A claim lends up to n items to an agent until their leases expire; the agent ends each
// lease with an outcome. Only the lease that is still in force can end it: a write by a
// lease that was handed on fails with [ErrLeaseLost], on every database.
//
// The package holds all rules and no SQL. [Store] is what it needs of a database: package
// sqlite and package postgres are the real ones, package memory is the specification they
// are compared with. The rules are pure functions from a [Record] to a [Change]; a store
// locks the rows, hands their records over and writes what comes back, all in one
// transaction ([Store.Update]). Only the hot path, claiming, completing, renewing, is a
// statement of the store's own.
//
// Package worker runs the claim–handle–finish loop.
package ledger
