package ledger

import (
	"fmt"
	"time"
)

// RoundState is how the current round of an item stands. Of a recurring item that is the round of the
// newest period that has begun, also while it waits for the next one; of any other its newest opening.
type RoundState string

const (
	RoundOpen      RoundState = "open"      // not ended: waiting, ready or leased
	RoundDone      RoundState = "done"      // done or skipped
	RoundFailed    RoundState = "failed"    // failed for good: dead, or waiting for the next round
	RoundDoubt     RoundState = "doubt"     // may or may not have been done; a person decides
	RoundCancelled RoundState = "cancelled" // taken back
)

// RoundStates are all states of rounds.
var RoundStates = []RoundState{RoundOpen, RoundDone, RoundFailed, RoundDoubt, RoundCancelled}

// RoundState says how the record's current round stands, at a moment of the database's clock.
func (r *Record) RoundState(now time.Time) RoundState {
	if r.roundOver(now) {
		return r.Last.closes()
	}
	return r.State().round()
}

// round is how the current round of an item in this state stands, unless it is over while the item waits.
func (s State) round() RoundState {
	switch s {
	case StateDone:
		return RoundDone
	case StateCancelled:
		return RoundCancelled
	case StateDead:
		return RoundFailed
	case StateDoubt:
		return RoundDoubt
	}
	return RoundOpen
}

// roundOver says of a recurring item that its round has ended and the next one has not begun. What was opened
// again since, for later, has not ended.
func (r *Record) roundOver(now time.Time) bool {
	return r.Work != nil && r.Work.State == StateWaiting && r.Work.Due.After(now) && r.Last != nil && r.Last.closes() != RoundOpen && r.Last.Epoch == r.Work.Epoch
}

// closes is how an attempt left the round of a recurring item that it closed: open if it closed none.
func (a *Attempt) closes() RoundState {
	switch {
	case !a.Final || a.Period.IsZero() || a.Outcome == OutcomeCancelled:
		return RoundOpen
	case a.Outcome == OutcomeFailed || a.Outcome == OutcomeCrashed || a.Outcome == OutcomeLost:
		return RoundFailed
	}
	return RoundDone
}

// Open is how many items have a round that is open: what is left to do.
func (c *Counts) Open() int64 { return c.Waiting - c.RoundsDone - c.RoundsFailed + c.Ready + c.Leased }

// completed says whether a period was completed in this opening of a recurring item, or one after it was.
func (r *Record) completed(period time.Time, epoch int64) bool {
	return r.DonePeriod.After(period) || r.DonePeriod.Equal(period) && r.DoneEpoch >= epoch
}

// attempted says whether the round that is queued was attempted before.
func (r *Record) attempted(now time.Time) bool {
	return r.Last != nil && r.Last.Epoch == r.Work.Epoch && (r.Every == "" || r.Last.Period.Equal(r.period(now)))
}

// IdempotencyKey is the same for every attempt of one round, and of no other round or item. A period in
// which a recurring item was opened again has one key for each opening.
func (l *Lease) IdempotencyKey() string {
	key := fmt.Sprintf("%s/%d/%s", l.Kind, l.ID, l.Round)
	if l.Every != "" && l.epoch > 1 {
		key += fmt.Sprintf(".%d", l.epoch)
	}
	return key
}
