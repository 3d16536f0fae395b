// Package locks provides named locks with a time to live (TTL). A lock has at most one holder at a time, by the
// database's clock. The clocks of the programs do not matter.
//
// A caller holds a lock from [Manager.Acquire] until [Manager.Release]; meanwhile the package renews it. A lock that
// was not renewed for its TTL expires: the program died, was paused, or could not reach the database. Acquire returns
// a context that ends before the lock expires, so that the holder stops in time.
//
// A paused process cannot stop in time. It may continue after the lock has expired, and write although another
// process holds the lock. There are two ways to prevent such a write:
//
//   - Fencing number. The number of a holder is greater than the numbers of all earlier holders. Send it with each
//     write to another system. That system refuses a write whose number is smaller than one that it has seen.
//   - Transaction. [InTx] commits a transaction on the ledger's own database only if the lock is still held. In a
//     transaction that you begin yourself, call [Manager.Check].
//
// If another caller holds the lock, Acquire returns a [HeldError]: who holds it, since when and until when. There is no
// queue. Waiting callers poll, and the first one that polls after the release gets the lock.
//
// The rules of locks are functions in this package. Each maps the record of a lock to its next record. A store keeps
// the records, and locks a record while a rule is applied to it.
package locks
