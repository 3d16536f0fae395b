// Package txn runs functions in transactions of your own database, repeats the whole function
// when the database gives up on it, and locks entities by name for the length of a transaction.
//
// It needs no ledger and no tables: entity locks are advisory transaction locks on Postgres; on
// SQLite, where one transaction writes at a time, the transaction is the lock. A [Runner] works on
// your own pool: see postgres.DB, postgres.SQLDB and sqlite.DB.
//
// # The rules
//
// A function that runs in a transaction may be called several times, so it has no effects outside
// of the transaction: no mail, no request, no counter. (An item that is added with Ledger.AddTx
// exists if and only if the transaction commits; let a worker do the rest.) It returns the errors
// of its statements, wrapped with %w if at all. One that it swallows cannot be repeated; Postgres
// then undoes the transaction and Run returns [ErrRolledBack], while SQLite has undone only the
// statement, mostly.
//
// Run inside of Run on the same pool joins the transaction, by the ctx that the function got: pass
// that one on, and use the tx, not the pool, or the function waits for itself. There is one outcome:
// if a joined call fails, everything is rolled back, also when its caller swallows the error.
//
// # What is repeated
//
//	Postgres  40001 serialization failure, 40P01 deadlock, 55P03 lock not available;
//	          a connection that was lost, or could not be made, before COMMIT was sent
//	SQLite    SQLITE_BUSY with all that belongs to it (BUSY_SNAPSHOT: somebody has written since
//	          the transaction read), SQLITE_LOCKED, SQLITE_PROTOCOL
//
// Everything else is returned as it is. A connection that breaks while COMMIT is under way is
// [ErrUncertain] and never repeated: the money may have been moved. So is an I/O error in the
// COMMIT of SQLite. Have a row in the same transaction that describes what was done (a transfer's id with
// a unique index), look for it, and then decide.
//
// # What entity locks stop, and what they do not
//
// [Lock] excludes those who lock the same key with this package, in all processes that use the
// same database, until the transaction ends. A statement that asks for no lock passes: ordinary
// reads are not blocked, and neither is a plain UPDATE. Where others write to the same rows, lock
// the rows (SELECT … WHERE id = ANY($1) ORDER BY id FOR UPDATE) inside Run instead.
package txn
