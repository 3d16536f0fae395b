package ledger

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// Claim asks for items of one kind.
type Claim struct {
	// Kind to claim. Required.
	Kind string
	// Agent who asks. A daemon uses a name that no other process has; a person uses their own.
	Agent string
	// Limit is the most leases that are returned, 1 … bounds.MaxBatch; with Resume it counts what
	// the agent holds already.
	Limit int
	// TTL of the leases, 1 s … 24 h; 0 means one minute.
	TTL time.Duration
	// Shard restricts the claim to items whose slot modulo Count is Index.
	Shard scheduler.Shard
	// Resume also returns what Agent holds, first and extended, under the attempt and token it
	// already has: for people who come back to their desk. Never set it where two
	// processes share a name.
	Resume bool
	// LookFirst is for a claim that expects nothing, such as the poll of an idle worker: it looks whether anything
	// is ready before it claims. That costs a database less than a claim in vain, and one more question otherwise.
	LookFirst bool
}

// Lease is one claimed item. Item.ID and Attempt together name the claim for ever:
// Attempt is never used again, so it is also the fencing number to hand to other systems.
type Lease struct {
	Item
	Agent     string
	LockID    uuid.UUID // token of the claim, the same for all items of one call
	StartedAt time.Time // of the claim, by the database's clock
	ExpiresAt time.Time // by the database's clock, as of the claim
	Alone     bool      // suspected of killing its worker: run it with nothing beside it
	Resumed   bool      // the agent held it before this call

	called time.Time // monotonic: when the granting call started
	ttl    time.Duration

	limited bool   // its kind has limits: others wait for its end
	epoch   int64  // number of the opening
	key     string // the idempotency key as another program told it; "": it is computed
	first   bool   // attempt of the opening
	ended   *Ending
}

// Token is "<id>.<attempt>", the form that the command line prints and accepts.
func (l *Lease) Token() string { return fmt.Sprintf("%d.%d", l.ID, l.Attempt) }

// First reports whether it is the first attempt since the item was added, or was opened again by Add.
func (l *Lease) First() bool { return l.first || l.Attempt == 1 }

// Ended is how the last FinishTx ended this lease if its transaction has committed; FinishTx cannot know that. It is
// nil if there was none. It must not be called while FinishTx runs.
func (l *Lease) Ended() *Ending { return l.ended }

// Remaining is how long the holder may still trust the lease by its own monotonic clock:
// start of the granting call + TTL − a margin of one tenth. Renewals are the holder's to count.
func (l *Lease) Remaining() time.Duration { return l.ttl - l.ttl/10 - time.Since(l.called) }

// Result is what a holder reports. Make one with the functions below.
type Result struct {
	Outcome Outcome
	Output  []byte        // at most bounds.MaxOutput; kept at any outcome
	Code    string        // class of the failure, [a-z0-9_]{1,64}, e.g. "http_404"
	Error   string        // text of the failure, or the reason; cut at 8 KiB
	Final   bool          // with OutcomeFailed: do not try again
	Delay   time.Duration // with OutcomeFailed: not before; with OutcomeSnoozed: for how long
	// NoReport marks a failure that the handler did not report itself: it panicked, or was
	// killed when it overran its timeout. The kind's OnLost then decides what that means.
	NoReport bool
	Emit     []NewItem // added in the same transaction; only with done and skipped
	Log      string    // cut to its last 16 KiB
	Worker   string    // what worked on it: plugin@version+digest
}

// Done completes an item; output may be nil.
func Done(output []byte, emit ...NewItem) Result {
	return Result{Outcome: OutcomeDone, Output: output, Emit: emit}
}

// Skip completes an item on which there was nothing to do.
func Skip(reason string) Result { return Result{Outcome: OutcomeSkipped, Error: reason} }

// Fail is a failed attempt; the kind's policy decides whether and when it is tried again.
func Fail(err error) Result { return Result{Outcome: OutcomeFailed, Error: err.Error()} }

// Permanent is a failed attempt that must not be tried again.
func Permanent(err error) Result {
	return Result{Outcome: OutcomeFailed, Error: err.Error(), Final: true}
}

// RetryAfter is a failed attempt with the earliest time of the next one.
func RetryAfter(d time.Duration, err error) Result {
	return Result{Outcome: OutcomeFailed, Error: err.Error(), Delay: d}
}

// Snooze asks for the item again after d. It counts as no failure.
func Snooze(d time.Duration, why string) Result {
	return Result{Outcome: OutcomeSnoozed, Delay: d, Error: why}
}

// Doubt means that the effect may or may not have happened. The item waits for a person,
// with any OnLost of its kind.
func Doubt(err error) Result { return Result{Outcome: OutcomeUnknown, Error: err.Error()} }

// Release hands an unstarted item back.
func Release() Result { return Result{Outcome: OutcomeReleased} }

// Crashed means that the process that worked on the item died; text is its last words.
func Crashed(text string) Result {
	return Result{Outcome: OutcomeCrashed, Code: "crashed", Error: text, NoReport: true}
}

// Ending is one lease and its result.
type Ending struct {
	Lease  *Lease
	Result Result

	// Finish sets these where it returns no error, in the slice that it was given. Recorded is how the attempt was
	// written down; it may differ from what was reported (a failure of an item that was to be cancelled is
	// cancelled). State and Round are where the item and its current round stand by it.
	Recorded Outcome
	State    State
	Round    RoundState
}
