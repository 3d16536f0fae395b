package ledger

import (
	"context"
	"time"

	"github.com/ledgerd/ledgerd/ledger/bounds"
)

// codePutOff is the code of the attempt with which a person puts an item off.
const codePutOff = "put_off"

// PutOff makes items wait until a time: items that are ready, wait or are dead, and recurring ones whose round failed.
// Their failures become 0; the time since which they fail stays. A recurring item whose round is done begins its next
// round at that time or later. If the time has come already, PutOff ends an earlier put-off: the item is ready now, or
// begins its next round at its regular time. Retry does the same. Items that are leased or in doubt stay as they
// are. It returns how many items it changed. The journal names actor as the operator.
func (l *Ledger) PutOff(ctx context.Context, actor string, f Filter, until time.Time, how ...ActOption) (int64, error) {
	o, err := actOptions(how)
	if err != nil {
		return 0, err
	}
	if time.Until(until) > bounds.MaxDelay {
		return 0, &InvalidError{Field: "due", Reason: "is more than " + bounds.MaxDelay.String() + " ahead"}
	}
	until = until.UTC().Truncate(time.Microsecond)
	return l.act(ctx, "put-off", actor, f, o.Tell, func(r *Record, now time.Time) *Change {
		return r.putOff(actor, until, now, l.floor())
	})
}

// putOff is the rule of PutOff for one record. It writes one more attempt, with the actor as its agent, so that the
// item shows by whom it was put off.
func (r *Record) putOff(actor string, until, now time.Time, floor int64) *Change {
	w := r.Work
	if w == nil || w.State == StateLeased || w.State == StateDoubt {
		return nil
	}
	queued := w.State == StateReady || w.State == StateWaiting && !w.Due.After(now)
	switch {
	case r.RoundState(now) == RoundDone:
		return r.withDue(later(until, r.nextRound(now)), now)
	case !until.After(now) && queued:
		return nil
	case !until.After(now):
		return &Change{ID: r.ID, Work: r.fresh(w.Epoch, now)}
	case r.waitsPutOff(now):
		return r.withDue(until, now)
	}
	c := r.verdict(actor, Result{Outcome: OutcomeSnoozed, Delay: until.Sub(now), Code: codePutOff}, now, floor)
	c.Work.Failures, c.Work.Crashes, c.Work.Losses, c.Work.Alone = 0, 0, 0, false
	return c
}

// withDue returns the change that gives a waiting record another due time; nil if the time is the same.
func (r *Record) withDue(due, now time.Time) *Change {
	if due.Equal(r.Work.Due) {
		return nil
	}
	w := r.queue(StateReady, due)
	if due.After(now) {
		w.State = StateWaiting
	}
	return &Change{ID: r.ID, Work: w}
}

// nextRound returns the regular start of the next round of a recurring item whose current round is over.
func (r *Record) nextRound(now time.Time) time.Time { return r.every().Next(r.Last.Period, now) }

// waitsPutOff reports whether a person put off the open round of a waiting record, or the item if it is worked once.
func (r *Record) waitsPutOff(now time.Time) bool {
	return r.Work != nil && r.Work.State == StateWaiting && r.Work.Due.After(now) && r.Last != nil &&
		r.Last.Outcome == OutcomeSnoozed && r.Last.Code == codePutOff
}

// nextPutOff reports whether the next round of a recurring item was put off. The current round is done.
func (r *Record) nextPutOff(now time.Time) bool {
	return r.Every != "" && r.roundOver(now) && r.Last.ClosedAs() == RoundDone && r.Work.Due.After(r.nextRound(now))
}
