// Package history records what processes asked of a ledger and what it answered, for checkers
// that look at a run afterwards (internal/historytest).
//
// A recorder (internal/recorder) stands between the rules and a ledger.Store. Every call that writes becomes two
// lines of JSON in a file: one before anything can have been committed, with what is to happen,
// and one with the answer. Each is one write to a file opened for appending, so a process that
// is killed leaves what it had begun: a call without an answer may or may not have taken effect.
// Only programs built with the tag chaos record.
//
// Moments of calls are CLOCK_MONOTONIC, the same for all processes of a machine; all other
// times are the database's.
package history
