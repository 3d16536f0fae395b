// Package ledger keeps items of work and lends each one to a single agent at a time.
//
// An item is identified by (kind, scope, key) and is added once, however often it is given.
// A claim lends up to n items to an agent until their leases expire; the agent ends each
// lease with an outcome. Only the lease that is still in force can end it: a write by a
// lease that was handed on fails with [ErrLeaseLost], on every database.
//
// A program makes a ledger of a store with [New] and calls the methods of [Ledger]: Add, Claim, Extend and
// Finish for work; List, Walk, Count and Why to look; Retry, Cancel, Decide and the like for operators. Packages
// beside it have what such a program needs at times: bounds of names and batches, filters as text, orders of a
// walk, stats.
//
// The package holds the rules and no SQL; package scheduler has the rules for the items that a claim leases. [Store] is
// what the package needs of a database: package sqlite and package postgres are the real ones, package memory is the
// specification that they are compared with. A program needs none of [Tx], [Record], [Work], [Change] and [Grant]:
// rules and stores exchange them. The rules are pure functions from a [Record] to a [Change]. A store locks the rows,
// passes their records to a rule and writes the change that it returns, all in one transaction ([Store.Update]). Only
// the hot path, claiming, completing, renewing, is a statement of the store's own.
//
// Package worker runs the claim–handle–finish loop.
package ledger
