// Package postgres keeps a ledger in Postgres 13 or newer.
//
// All of it lives in one schema of the database, in tables named ledger_…; every statement
// names that schema, so neither search_path nor tables of the application matter.
//
// Row locks settle what many processes do at once. A claim picks ready rows with FOR
// UPDATE SKIP LOCKED and stamps them in the same statement; the rules of package ledger run in
// [Store.Update], on records that it has locked. A process with the lock of an item's backlog row, or
// of its items row when there is none, may change the item; both are taken in id order, items
// first. Deadlocks and serialization failures make the whole transaction run again.
//
// Kinds with limits are the exception: see limit.go. Their claims run one at a time, under an advisory lock.
//
// Three habits keep the hot path fast after any history of the table. Statements are unnamed:
// the server plans each execution for the table as it is, not as it was when a connection was
// young. Outside the sub-select that picks rows, conditions name only item_id and lock_id: a
// partial index that was small at the last ANALYZE must not look tempting. And claims remember
// how far they came (see positions), because a long transaction anywhere in the database keeps
// the index entries of finished items in place, and every claim would wade through them.
package postgres
