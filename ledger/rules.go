package ledger

import (
	"cmp"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/ledger/cause"
	"github.com/ledgerd/ledgerd/ledger/recurrence"
)

// The rules of the life of an item. Every function takes a record as the database has it, locked, and returns what
// becomes of it.

// State returns the state of the item: that of its backlog row, else the one in which its newest attempt left it. An
// item leaves the backlog only by an attempt.
func (r *Record) State() State {
	switch {
	case r.Work != nil:
		return r.Work.State
	case r.Last != nil:
		return r.Last.leaves()
	}
	return StateDone
}

// leaves returns the state of an item that this attempt took out of the backlog. A recurring item leaves the backlog
// only when it is cancelled; its last attempt may still have ended as done.
func (a *Attempt) leaves() State {
	if a.Outcome == OutcomeCancelled || !a.Period.IsZero() {
		return StateCancelled
	}
	return StateDone
}

// attempt returns the number of the newest claim or verdict.
func (r *Record) attempt() int64 {
	switch {
	case r.Work != nil:
		return r.Work.Attempt
	case r.Last != nil:
		return r.Last.Attempt
	}
	return r.BaseAttempt
}

// pruned reports whether the item had a payload that was removed.
func (r *Record) pruned() bool { return r.Payload != nil && len(r.Payload) == 0 }

// Item returns the record as people see it, at a time of the database's clock. An item that waits and is due is ready,
// also before a worker has called Promote.
func (r *Record) Item(now time.Time) Item {
	it := Item{ID: r.ID, Kind: r.Kind, Scope: r.Scope, Key: r.Key, Stored: r.Stored, State: r.State(),
		Attempt: r.attempt(), Round: r.round(now), RoundState: r.RoundState(now), Outage: r.Outage, Output: r.Output}
	if w := r.Work; w != nil {
		it.Priority, it.Due = w.Priority, w.Due
		if !r.untried(now) {
			it.Failures, it.Crashes, it.Losses = w.Failures, w.Crashes, w.Losses
		}
		it.Agent, it.LeasedAt, it.ExpiresAt = w.Agent, w.LeasedAt, w.ExpiresAt
		it.PutOff = r.waitsPutOff(now) || r.nextPutOff(now)
		if w.State == StateWaiting && !w.Due.After(now) {
			it.State = StateReady
		}
	}
	if it.Pruned = r.pruned(); it.Pruned {
		it.Payload = nil
	}
	if a := r.Last; a != nil {
		it.Outcome, it.Code, it.Error, it.EndedAt = a.Outcome, a.Code, a.Error, a.FinishedAt
		it.Cause = a.Cause
		it.StartedAt, it.EndedBy, it.Worker = a.LeasedAt, a.Agent, a.Worker
	}
	return it
}

// round returns the opening or period that is queued, being worked, or was worked last.
func (r *Record) round(now time.Time) string {
	if r.Every != "" {
		return r.every().Name(r.period(now))
	}
	if r.Work != nil {
		return roundName(r.Work.Epoch)
	}
	return roundName(r.Epoch)
}

// every returns the rule by which a recurring item recurs. The rule was checked when the item was added. It fails only
// for a time zone that this program does not know; then it is days in UTC.
func (r *Record) every() recurrence.Rule {
	e, err := recurrence.Parse(r.Every, r.Zone)
	if err != nil {
		e, _ = recurrence.Parse("day", "")
	}
	return e
}

// period returns the start of the period of a recurring item that is queued or being worked, or that has ended if the
// next one has not begun. A claim belongs to the period in which it was made, but not to one before the item was due: a
// clock may step back.
func (r *Record) period(now time.Time) time.Time {
	switch w := r.Work; {
	case w != nil && w.State == StateLeased:
		return r.every().Start(later(w.LeasedAt, w.Due))
	case (w == nil || w.State == StateDoubt) && r.Last != nil && !r.Last.Period.IsZero(), r.roundOver(now):
		return r.Last.Period
	case w != nil:
		return r.every().Start(later(now, w.Due))
	}
	return r.every().Start(now)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// queue returns an unleased backlog row with the counters of the item.
func (r *Record) queue(state State, due time.Time) *Work {
	w := Work{Epoch: r.Epoch, Attempt: r.attempt()}
	if r.Work != nil {
		w = *r.Work
	}
	w.State, w.Due, w.Cancel = state, due, false
	w.CancelReason, w.Renewals = "", 0
	w.Agent, w.LockID, w.LeasedAt, w.StartedAt, w.ExpiresAt = "", uuid.Nil, time.Time{}, time.Time{}, time.Time{}
	return &w
}

// fresh returns a backlog row for an opening, ready at due, with its counters at 0.
func (r *Record) fresh(epoch int64, due time.Time) *Work {
	w := r.queue(StateReady, due)
	w.Epoch, w.Reopen = epoch, false
	w.Failures, w.Crashes, w.Losses, w.Alone = 0, 0, 0, false
	return w
}

// freshFrom returns a fresh row that is not ready before due.
func (r *Record) freshFrom(epoch int64, due, now time.Time) *Work {
	w := r.fresh(epoch, due.UTC().Truncate(time.Microsecond))
	if due.After(now) {
		w.State = StateWaiting
	}
	return w
}

// roundEnds sets the priority from before ThisRound again, in the row of a round that has ended.
func (w *Work) roundEnds() {
	if w.Usual != nil {
		w.Priority, w.Usual = *w.Usual, nil
	}
}

// settle returns the change that ends the claim in force.
func (r *Record) settle(res Result, now time.Time, jitter float64) Change {
	c := r.conclude(res, now, jitter)
	roundGoesOn := c.Work != nil && c.Work.State != StateDead && c.Work.State != StateDoubt && !c.Attempt.Final
	if roundGoesOn && c.Attempt.Outcome == OutcomeLost {
		return c // lost together with its worker: not a failure of the item
	}
	c.Outage = r.Outage.after(c.Attempt, now)
	return c
}

// conclude is settle without the outage.
func (r *Record) conclude(res Result, now time.Time, jitter float64) Change {
	w := r.Work
	out := res.Outcome
	if out == OutcomeUnknown || res.NoReport && r.Policy.inDoubt() && (out == OutcomeFailed || !w.StartedAt.IsZero()) {
		return r.toDoubt(res, out)
	}
	if w.Cancel && !out.Completed() {
		out = OutcomeCancelled // the item was to be cancelled, and nothing took effect
	}
	if r.Every != "" {
		return r.settleRecurring(res, out, now, jitter)
	}
	c := Change{ID: r.ID, Attempt: r.endedAttempt(res, out)}
	next := *r.queue(StateReady, w.Due)
	switch out {
	case OutcomeDone, OutcomeSkipped, OutcomeCancelled:
		c.Attempt.Final = true
		if !w.Reopen || out == OutcomeCancelled && !w.Cancel { // a holder that reports cancelled ends the newer version, too
			c.Finish = true
			return c
		}
	default:
		r.again(&next, res, out, now, jitter)
	}
	if w.Reopen { // the newer version starts with its counters at 0
		next = *r.fresh(r.Epoch, now)
	}
	if w.Reopen || next.State == StateDead {
		next.roundEnds()
	}
	c.Work = &next
	return c
}

// newerThanCancel reports whether a leased item that is to be cancelled got a newer version after Cancel. Cancel itself
// clears Reopen.
func (r *Record) newerThanCancel() bool { return r.Work.Reopen && r.Epoch > r.Work.Epoch }

// again sets counters, state and due time of the row after an attempt that did not complete the item.
func (r *Record) again(next *Work, res Result, out Outcome, now time.Time, jitter float64) {
	p := r.Policy.WithDefaults()
	switch out {
	case OutcomeFailed:
		next.Failures++
		next.Losses = 0
		next.Due = now.Add(cmp.Or(res.Delay, p.delay(next.Failures, jitter)))
		if res.Final || next.Failures >= p.MaxFailures {
			next.State, next.Due = StateDead, now
		}
	case OutcomeCrashed:
		next.Crashes++
		next.Losses = 0
		next.Due = now.Add(p.delay(next.Crashes, jitter))
		if next.Crashes >= p.MaxCrashes {
			next.State, next.Due = StateDead, now
		}
	case OutcomeLost:
		next.Losses++
		if next.Losses >= p.MaxLost {
			next.State = StateDead
		}
	case OutcomeSnoozed:
		next.Losses = 0
		next.Due = now.Add(res.Delay)
	}
	next.Alone = next.Crashes >= aloneCrashes || next.Losses >= aloneLosses
	if next.State == StateReady && next.Due.After(now) {
		next.State = StateWaiting
	}
}

// toDoubt returns the change that ends an attempt that may or may not have taken effect.
func (r *Record) toDoubt(res Result, out Outcome) Change {
	if out != OutcomeLost && out != OutcomeCrashed {
		out = OutcomeUnknown
	}
	c := Change{ID: r.ID, Attempt: r.endedAttempt(res, out)}
	c.Work = r.queue(StateDoubt, r.Work.Due)
	// A late report that nothing took effect still cancels the item.
	c.Work.Cancel, c.Work.CancelReason = r.Work.Cancel, r.Work.CancelReason
	return c
}

// codeRoundDone marks a completion of a period that had been completed before.
const codeRoundDone = "round_done"

// settleRecurring ends an attempt of a recurring item. The item goes back to waiting for its next period, also when the
// period failed for good. If a newer version came meanwhile, that one is ready now, in an opening of its own. A
// completion is recorded as snoozed if this period or a later one is completed already in the same opening: there is
// one completion per period and opening.
func (r *Record) settleRecurring(res Result, out Outcome, now time.Time, jitter float64) Change {
	e, period := r.every(), r.period(now)
	if out.Completed() && !r.DonePeriod.Before(period) {
		out, res.Code = OutcomeSnoozed, codeRoundDone
	}
	if r.Work.Cancel && !out.Completed() {
		out = OutcomeCancelled
	}
	c := Change{ID: r.ID, Attempt: r.endedAttempt(res, out)}
	if out == OutcomeCancelled && !r.Work.Cancel || r.Work.Cancel && !r.newerThanCancel() { // withdrawn for good
		c.Attempt.Final, c.Finish = true, true
		return c
	}
	next := *r.queue(StateReady, r.Work.Due)
	if r.Last != nil && r.Last.Period.Before(period) || r.untried(now) { // counters are of a round
		next.Failures, next.Crashes, next.Losses = 0, 0, 0
	}
	over, failed := out.Completed() || res.Code == codeRoundDone, false
	if !over {
		r.again(&next, res, out, now, jitter)
		failed = next.State == StateDead // the period failed for good
	}
	switch {
	case r.Epoch > r.Work.Epoch: // the newer version starts with its counters at 0
		next = *r.fresh(r.Epoch, now)
		next.roundEnds()
		c.Attempt.Final = out.Completed()
	case over, failed:
		ended := next
		next = *r.fresh(r.Epoch, e.Next(period, now))
		next.roundEnds()
		if failed { // its counters are shown until the next round begins
			next.Failures, next.Crashes, next.Losses = ended.Failures, ended.Crashes, ended.Losses
		}
		c.Attempt.Final = true
	}
	if next.State == StateReady && next.Due.After(now) {
		next.State = StateWaiting
	}
	next.Epoch, next.Reopen = r.Epoch, false
	c.Work = &next
	return c
}

// endedAttempt returns the row of the attempt for the claim in force.
func (r *Record) endedAttempt(res Result, out Outcome) *Attempt {
	w := r.Work
	a := &Attempt{ItemID: r.ID, Attempt: w.Attempt, Kind: r.Kind, Agent: w.Agent, LockID: w.LockID.String(),
		Worker: res.Worker, Epoch: w.Epoch, DueAt: w.Due, LeasedAt: w.LeasedAt, StartedAt: w.StartedAt, Renewals: w.Renewals,
		Outcome: out, Code: res.Code, Error: res.Error, Log: res.Log, Output: res.Output}
	if out == OutcomeCancelled && w.Cancel && w.CancelReason != "" {
		a.Error = w.CancelReason
	}
	if out.FailedOrUncertain() {
		a.Cause = cause.Of(res.Code, cmp.Or(res.Error, string(out)), r.Key)
	}
	if r.Every != "" {
		a.Period = r.period(w.LeasedAt)
	}
	return a
}
