// Package locks gives named locks with a time to live: at most one holder at a time, by the
// database's clock, whatever the clocks of the programs say.
//
// A lock is held from Acquire until Release, or until its time to live has passed without a
// renewal: then the program died, was frozen, or could not reach the database. The context that
// Acquire returns ends before that, so that the holder stops in time; who is not scheduled at all
// cannot stop.
//
// So a lock cannot stop a holder that was paused beyond its time to live. What can is its fencing
// number, greater than that of every earlier holder: hand it to the system that you write to, which
// refuses what carries a smaller one than it has seen; or write to the ledger's own database, where
// [Check] refuses in your transaction, and [InTx] does it for you.
//
// Who asks for a lock is told who has it, since when and until when. Nobody queues: of several who
// wait the one that looks first after the release gets it.
//
// The rules are here, as functions from a record to a record; stores keep the records, locked
// while a rule is applied.
package locks
