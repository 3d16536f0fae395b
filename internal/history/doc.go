// Package history records what processes asked of a ledger and what it answered, for checkers
// that look at a run afterwards (internal/historytest).
//
// A recorder (internal/recorder) stands between the rules and a ledger.Store. Every call that writes becomes two
// lines of JSON in a file: a line with its arguments before anything can have been committed, and a line with its
// answer. Each line is one write to a file opened for appending, so the file of a killed process holds all calls that
// it had begun. A call without an answer may or may not have taken effect. Only programs built with the tag chaos
// record.
//
// Begin and end of a call are times of CLOCK_MONOTONIC, the same clock for all processes of a machine. All other times
// are of the database's clock.
package history
