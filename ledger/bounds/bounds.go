// Package bounds has the bounds of what a ledger takes: how long a name or a text may be, how many items one call
// takes, how long a lease lasts, and how long by default. They are the same on every store. Package ledger refuses
// values beyond them with its ErrInvalid, and the schemas of both databases repeat them as CHECKs. The bounds of an
// item's other texts stand in ledger.ItemTexts, each beside its column.
package bounds

import "time"

// The bounds.
const (
	MaxKind        = 64       // bytes; [a-z0-9][a-z0-9-]*
	MaxScope       = 256      // bytes
	MaxKey         = 2048     // bytes; Postgres indexes at most 2,704 bytes of kind, scope and key together
	MaxAgent       = 256      // bytes
	MaxLockName    = 256      // bytes
	MaxEnvironment = 64       // bytes
	MaxWorker      = 256      // bytes; plugin, version and digest of its config
	MaxConfig      = 8 << 10  // bytes; the settings in force, for people
	MaxPayload     = 1 << 20  // bytes
	MaxOutput      = 1 << 20  // bytes
	MaxCode        = 64       // bytes; [a-z0-9_]+
	MaxError       = 8 << 10  // bytes; longer text is cut
	MaxLog         = 16 << 10 // bytes; the last ones are kept
	MaxBatch       = 10_000   // items of one Add, Claim or Finish
	MaxEmit        = 10_000   // items that one attempt may emit
	MinPriority    = -2       // first
	MaxPriority    = 2        // last
	MinTTL         = time.Second
	MaxTTL         = 24 * time.Hour
	DefaultTTL     = time.Minute               // of a lease; the key lease of the config has it as well
	MaxDelay       = 10 * 365 * 24 * time.Hour // of RetryAfter and Snooze
	MaxSnoozes     = 100                       // of Result.AtMost
	LapsedKept     = 24 * time.Hour            // for how long a heartbeat that ran out without a goodbye is remembered
	LapsedMost     = 100                       // ended programs that are remembered
)
