package ledger

import (
	"slices"
	"strconv"
	"time"
)

// RoundState is the state of the current round of an item. The current round of a recurring item is that of the newest
// period that has begun, also while the item waits for the next one; of any other item it is the newest opening.
type RoundState string

const (
	RoundOpen      RoundState = "open"      // not ended: waiting, ready or leased
	RoundDone      RoundState = "done"      // done or skipped
	RoundFailed    RoundState = "failed"    // failed for good: dead, or waiting for the next round
	RoundDoubt     RoundState = "doubt"     // may or may not have been done; a person decides
	RoundCancelled RoundState = "cancelled" // withdrawn
	RoundPutOff    RoundState = "put_off"   // of a recurring item: not ended, and put off by a person until a later time
)

// RoundStates are all states of rounds.
var RoundStates = []RoundState{RoundOpen, RoundDone, RoundFailed, RoundDoubt, RoundCancelled, RoundPutOff}

// Conditions of a [Filter] on a round that is over, of an item that had a round before it. The state of such a round is
// RoundFailed or RoundDone.
const (
	RoundNewlyFailed RoundState = "newly_failed" // it failed, and the round before had not
	RoundRecovered   RoundState = "recovered"    // it is done, and the round before had failed
)

// RoundConditions are all that a Filter may ask of a round.
var RoundConditions = append(slices.Clone(RoundStates), RoundNewlyFailed, RoundRecovered)

// inRound reports whether one of the conditions holds for the record's current round. state is the state of the round.
func (r *Record) inRound(conditions []RoundState, state RoundState) bool {
	return slices.Contains(conditions, state) || slices.Contains(conditions, r.condition(state))
}

// condition is RoundNewlyFailed or RoundRecovered if it holds for the record's current round, else the state of the
// round.
func (r *Record) condition(state RoundState) RoundState {
	switch {
	case r.Last == nil || r.Last.Period.IsZero() || !r.CreatedAt.Before(r.Last.Period):
	case state == RoundFailed && !r.FailingSince.Before(r.Last.Period):
		return RoundNewlyFailed
	case state == RoundDone && !r.RecoveredAt.Before(r.Last.Period):
		return RoundRecovered
	}
	return state
}

// RoundCondition is the state of the record's current round, or RoundNewlyFailed or RoundRecovered if it holds.
func (r *Record) RoundCondition(now time.Time) RoundState { return r.condition(r.RoundState(now)) }

// RoundState returns the state of the record's current round, at a time of the database's clock.
func (r *Record) RoundState(now time.Time) RoundState {
	switch {
	case r.roundOver(now):
		return r.Last.ClosedAs()
	case r.waitsPutOff(now) && !r.Last.Period.IsZero():
		return RoundPutOff
	}
	return r.State().round()
}

// round returns the state of the current round of an item in this state, unless the round is over and the item waits.
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

// roundOver reports whether the round of a recurring item has ended and the next one has not begun. A round of an item
// that was opened again since, for later, has not ended.
func (r *Record) roundOver(now time.Time) bool {
	return r.Work != nil && r.Work.State == StateWaiting && r.Work.Due.After(now) && r.Last != nil &&
		r.Last.ClosedAs() != RoundOpen && r.Last.Epoch == r.Work.Epoch
}

// untried reports whether a recurring item has had no attempt in its current round: the newest attempt closed the round
// before, and the next one has begun. The counters of the backlog then belong to the round before.
func (r *Record) untried(now time.Time) bool {
	return r.Last != nil && r.Last.ClosedAs() != RoundOpen && !r.roundOver(now)
}

// ClosedAs returns the state in which an attempt left the round of a recurring item; RoundOpen if it did not close the
// round.
func (a *Attempt) ClosedAs() RoundState {
	switch {
	case !a.Final || a.Period.IsZero() || a.Outcome == OutcomeCancelled:
		return RoundOpen
	case a.Outcome.GaveUp():
		return RoundFailed
	}
	return RoundDone
}

// firstAttempt reports whether a claimed item was not attempted before in this opening. It is about the opening only:
// false for a recurring item without history, since earlier periods belong to the same opening.
func (r *Record) firstAttempt() bool {
	if r.Last == nil {
		return r.Every == ""
	}
	return r.Last.Epoch < r.Work.Epoch
}

// attempted reports whether an attempt was made in the opening and period that is queued. untried is about counters:
// its Last belongs to an earlier round.
func (r *Record) attempted(now time.Time) bool {
	return r.Last != nil && r.Last.Epoch == r.Work.Epoch && (r.Every == "" || r.Last.Period.Equal(r.period(now)))
}

// IdempotencyKey returns a key that all attempts of one round share, and no other round or item has. If a recurring
// item was opened again within a period, each opening has its own key.
func (l *Lease) IdempotencyKey() string {
	if l.key != "" {
		return l.key
	}
	key := l.Kind + "/" + strconv.FormatInt(l.ID, 10) + "/" + l.Round
	if l.Every != "" && l.epoch > 1 {
		key += "." + strconv.FormatInt(l.epoch, 10)
	}
	return key
}

// roundName returns the name of an opening of an item that is not recurring.
func roundName(epoch int64) string { return strconv.FormatInt(epoch, 10) }
