// Package postgres keeps a ledger in Postgres 13 or newer.
//
// All of it lives in one schema of the database, in tables named ledger_…; every statement names that schema, so
// neither search_path nor tables of the application matter.
//
// Row locks settle what many processes do at once. A claim picks ready rows with FOR UPDATE SKIP LOCKED and leases them
// in the same statement; the rules of package ledger run in [Store.Update], on records that it has locked. A process
// with the lock of an item's row in ledger_backlog, or in ledger_items if there is none, may change the item. Both are
// locked in id order, items first. After a deadlock or a serialization failure the whole transaction runs again.
//
// Kinds with limits are the exception: see limit.go. Their claims run one at a time, under an advisory lock. Claims of
// few items that come at the same time share a statement and its commit: see coalesce.go.
//
// Three habits keep the hot path fast after any history of the table. Statements are unnamed, so the server plans each
// execution for the table as it is; those that are prepared have one plan that stays right (see hot.go). Outside the
// sub-select that picks rows, conditions name only item_id and lock_id, lest the planner choose a partial index that
// was small at the last ANALYZE. Claims remember how far they came (see positions.go), because a long transaction
// anywhere in the database keeps the index entries of finished items, and every claim would read them again.
package postgres
