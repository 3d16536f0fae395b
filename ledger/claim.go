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
	// Agent that claims. A daemon uses a name that no other process has; a person uses their own.
	Agent string
	// Limit is the most leases that are returned, 1 … bounds.MaxBatch; with Resume it counts what
	// the agent holds already.
	Limit int
	// Items restricts the claim to these ids, at most bounds.MaxBatch, wherever they stand in the order of claims. Those
	// that are not ready or of another kind are left out. If more are ready than Limit, the first in the order of claims
	// are leased. Limits, rates, the pause, Shard and Lease.Alone hold as for every claim. With Resume, only those of
	// Items that the agent holds come back. Empty: all items.
	Items []int64
	// TTL of the leases, 1 s … 24 h; 0 means one minute.
	TTL time.Duration
	// Shard restricts the claim to items whose slot modulo Count is Index.
	Shard scheduler.Shard
	// Resume also returns the leases that Agent holds already, first and extended, with the attempt and lock_id that they
	// have: for people who continue their work. Never set it where two processes share a name.
	Resume bool
	// LookFirst is for a claim that will probably find nothing, such as the poll of an idle worker: it first reads
	// whether an item is ready. If none is, that costs the database less than a claim; else it is one query more.
	LookFirst bool
}

// Lease is one claimed item. Item.ID and Attempt together name the claim for ever:
// Attempt is never used again, so it is also the fencing number to hand to other systems.
type Lease struct {
	Item
	Agent     string
	LockID    uuid.UUID // the secret of the claim call, the same for all its items
	StartedAt time.Time // of the claim, by the database's clock
	ExpiresAt time.Time // by the database's clock, as of the claim
	Alone     bool      // suspected of killing its worker: run it while no other item runs
	Resumed   bool      // the agent held it before this call

	called time.Time // monotonic: when the call that granted it started
	ttl    time.Duration

	limited bool    // its kind has limits: its end may make room for other claims
	epoch   int64   // number of the opening
	key     string  // the idempotency key that another program passed on; "": it is computed
	first   bool    // first attempt of the opening
	ended   *Ending // by FinishTx
}

// Token is "<id>.<attempt>", the form that the command line prints and accepts.
func (l *Lease) Token() string { return fmt.Sprintf("%d.%d", l.ID, l.Attempt) }

// First reports whether it is the first attempt since the item was added, or was opened again by Add or Reopen.
func (l *Lease) First() bool { return l.first || l.Attempt == 1 }

// Ended returns how the last FinishTx ended this lease, if its transaction has committed; FinishTx cannot know that. It
// is nil if there was none. Do not call it while FinishTx runs.
func (l *Lease) Ended() *Ending { return l.ended }

// Remaining returns how long the holder may still trust the lease, by the monotonic clock of the holder: start of the
// granting call + TTL − a margin of one tenth. It does not know of renewals; the holder has to count them.
func (l *Lease) Remaining() time.Duration { return l.ttl - l.ttl/10 - time.Since(l.called) }

// Result is how a holder ends an item. Make one with the functions below.
type Result struct {
	Outcome Outcome
	Output  []byte        // at most bounds.MaxOutput; kept at any outcome
	Code    string        // class of the failure, [a-z0-9_]{1,64}, e.g. "http_404"
	Error   string        // text of the failure, or the reason; cut at 8 KiB
	Final   bool          // with OutcomeFailed: do not try again
	Delay   time.Duration // with OutcomeFailed: in place of the backoff, unless 0; with OutcomeSnoozed: wait so long
	// AtMost, with OutcomeSnoozed, bounds how many attempts in a row may end as a snooze with a code or as a failure.
	// After that many, a snooze is stored as a failure, until an attempt is done or skipped. A snooze with AtMost waits
	// one second at least. 0: no bound.
	AtMost int
	// NoReport marks a failure that the handler did not report itself: it panicked, or was
	// killed when it overran its timeout. The kind's OnLost then decides what that means.
	NoReport bool
	Emit     []NewItem // added in the same transaction; only with done and skipped; default scope: KIND/ID of this item
	Log      string    // cut to its last 16 KiB
	Worker   string    // what worked on it: plugin@version+digest
}

// Done completes an item; output may be nil.
func Done(output []byte, emit ...NewItem) Result {
	return Result{Outcome: OutcomeDone, Output: output, Emit: emit}
}

// Skip completes an item for which there was nothing to do.
func Skip(reason string) Result { return Result{Outcome: OutcomeSkipped, Error: reason} }

// Fail returns a failed attempt; the policy of the kind decides whether and when the item is tried again.
func Fail(err error) Result { return Result{Outcome: OutcomeFailed, Error: err.Error()} }

// Permanent returns a failed attempt that must not be tried again.
func Permanent(err error) Result {
	return Result{Outcome: OutcomeFailed, Error: err.Error(), Final: true}
}

// RetryAfter returns a failed attempt; the next one begins after d, in place of the kind's backoff.
func RetryAfter(d time.Duration, err error) Result {
	return Result{Outcome: OutcomeFailed, Error: err.Error(), Delay: d}
}

// Snooze asks for the item again after d. It counts as no failure.
func Snooze(d time.Duration, why string) Result {
	return Result{Outcome: OutcomeSnoozed, Delay: d, Error: why}
}

// Doubt means that the effect may or may not have happened. The item waits for a person,
// whatever OnLost its kind has.
func Doubt(err error) Result { return Result{Outcome: OutcomeUnknown, Error: err.Error()} }

// Release gives back an item that was not started.
func Release() Result { return Result{Outcome: OutcomeReleased} }

// Crashed means that the process that worked the item died; text is the last text that it wrote.
func Crashed(text string) Result {
	return Result{Outcome: OutcomeCrashed, Code: "crashed", Error: text, NoReport: true}
}

// Ending is one lease and its result.
type Ending struct {
	Lease  *Lease
	Result Result

	// Finish sets these where it returns no error, in the slice that it was given. Recorded is the outcome that is
	// stored. It may differ from the reported one: a failure of an item that was to be cancelled is stored as
	// cancelled. State and Round are how this leaves the item and its current round.
	Recorded Outcome
	State    State
	Round    RoundState
}
