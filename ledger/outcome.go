package ledger

import (
	"time"

	"github.com/ledgerd/ledgerd/ledger/stats"
)

// Outcome is how an attempt ended.
type Outcome string

const (
	OutcomeDone      Outcome = "done"
	OutcomeSkipped   Outcome = "skipped"   // nothing to do; counts as completed
	OutcomeFailed    Outcome = "failed"    // an error; whether it is tried again is the item's state
	OutcomeSnoozed   Outcome = "snoozed"   // come back later; not a failure
	OutcomeReleased  Outcome = "released"  // handed back unstarted; not a failure
	OutcomeCancelled Outcome = "cancelled" // withdrawn
	OutcomeUnknown   Outcome = "unknown"   // the handler cannot tell whether it took effect
	OutcomeLost      Outcome = "lost"      // the lease expired (written by the ledger)
	OutcomeCrashed   Outcome = "crashed"   // the process that worked on it died (written by its host)
)

// Outcomes are all outcomes in the order of their codes in the databases.
var Outcomes = []Outcome{OutcomeDone, OutcomeSkipped, OutcomeFailed, OutcomeSnoozed, OutcomeReleased,
	OutcomeCancelled, OutcomeUnknown, OutcomeLost, OutcomeCrashed}

// Completed reports whether the round was completed.
func (o Outcome) Completed() bool { return o == OutcomeDone || o == OutcomeSkipped }

// Failure reports whether the attempt failed: its handler reported that, or the process died. Statistics count these as
// failed.
func (o Outcome) Failure() bool { return o == OutcomeFailed || o == OutcomeCrashed }

// Uncertain reports whether the attempt may or may not have taken effect.
func (o Outcome) Uncertain() bool { return o == OutcomeUnknown || o == OutcomeLost }

// FailedOrUncertain reports whether an attempt with this outcome failed, crashed, was lost, or has an unknown outcome.
func (o Outcome) FailedOrUncertain() bool { return o.Failure() || o.Uncertain() }

// TakenBack reports whether the ledger ended the attempt, not its holder: the lease was taken back.
func (o Outcome) TakenBack() bool { return o == OutcomeLost }

// GaveUp reports whether a round whose final attempt has this outcome failed for good.
func (o Outcome) GaveUp() bool { return o.Failure() || o == OutcomeLost }

// Tally returns one attempt with this outcome and the time that it was worked, in the form of tallies.
func (o Outcome) Tally(worked time.Duration) stats.Minute {
	m := stats.Minute{Worked: worked.Truncate(time.Microsecond)}
	switch {
	case o.Completed():
		m.Done = 1
	case o.Failure():
		m.Failed = 1
	default:
		m.Other = 1
	}
	return m
}
