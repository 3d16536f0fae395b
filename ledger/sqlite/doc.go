// Package sqlite keeps a ledger in an SQLite file, also in that of an application: all its tables are named ledger_….
// It uses the driver modernc.org/sqlite and registers it as "sqlite". Handles of the caller on the same file must use
// that driver too: two SQLite libraries in one process break each other's locks and damage the file.
//
// On Linux the locks belong to open file descriptions: code of the same process may open, read and close the file, as
// a checksum does. The package chooses that for all SQLite files of the process when it is initialised. On
// macOS there are no such locks, so no other code of the process may open the file. A file with a second
// name, by a hard link or because the file itself is mounted, is refused.
//
// # How it works
//
// SQLite has one writer at a time, so a store has one connection that writes, owned by one
// goroutine. It takes the write lock, lends the connection to every operation that has
// queued up, each within a savepoint of its own, commits them together and only then answers
// them. So one flush to disk serves many callers, a failed operation does not spoil others, and a
// lone one is committed at once. Operations that free work come before claims.
//
// Other processes may use the file at the same time. SQLite's own way of waiting for the lock
// starves them, so the writer asks for it itself, again and again with jitter, and lets go of
// it now and then when its queue does not end.
//
// Readers have a few connections of their own and see the last commit. Questions that mostly
// have the answer "nothing" (is there anything to claim, to promote, to expire?) are asked
// there first, so that an idle worker never takes the write lock.
//
// Time is this machine's clock, read while the write lock is held.
package sqlite
