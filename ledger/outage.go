package ledger

import "time"

// Outage is the time since which an item has been failing, or at which it recovered. At most one of the times is set.
type Outage struct {
	// FailingSince is the end of the first failed attempt after the newest completed attempt. It stays the same
	// through retries and rounds, until an attempt completes or the item is cancelled. The loss of an attempt with its
	// worker counts as a failure only if the kind allows no further attempt.
	FailingSince time.Time
	// RecoveredAt is the end of the attempt that completed while the item was failing. The next failure clears it.
	RecoveredAt time.Time
}

// after returns the outage of an item after an attempt that ends now; nil if it does not change.
func (o Outage) after(a *Attempt, now time.Time) *Outage {
	failing := !o.FailingSince.IsZero()
	switch {
	case a.Outcome.FailedOrUncertain() && !failing:
		return &Outage{FailingSince: now}
	case !failing:
		return nil
	case a.Outcome.Completed(), a.Outcome == OutcomeSnoozed && a.Code == codeRoundDone:
		return &Outage{RecoveredAt: now}
	case a.Outcome == OutcomeCancelled: // the item is no longer wanted
		return &Outage{}
	}
	return nil
}
