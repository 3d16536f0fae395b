package ledger

import (
	"context"
	"time"

	"github.com/ledgerd/ledgerd/ledger/bounds"
)

// codePutOff is the code of the attempt with which a person puts an item off.
const codePutOff = "put_off"

// PutOff makes items wait until a time: those that are ready, that wait and that are dead, of recurring ones also those
// whose round failed. Their failures are forgotten, and since when they fail is kept. A recurring item whose round is
// done begins its next round not before that time. With a time that has come it takes them back: they are ready now,
// or begin their next round when their rhythm has it. Retry takes them back as well. Items that are leased or in doubt
// stay as they are. It returns how many items it changed. actor is who asks, for the journal.
func (l *Ledger) PutOff(ctx context.Context, actor string, f Filter, until time.Time, how ...Acting) (int64, error) {
	as, err := newActing(how)
	if err != nil {
		return 0, err
	}
	if time.Until(until) > bounds.MaxDelay {
		return 0, &InvalidError{Field: "due", Reason: "is more than " + bounds.MaxDelay.String() + " ahead"}
	}
	until = until.UTC().Truncate(time.Microsecond)
	return l.act(ctx, "put-off", actor, f, as.tell, func(r *Record, now time.Time) *Change {
		return r.putOff(actor, until, now, l.floor())
	})
}

// putOff is the rule of PutOff for one record. It is one more attempt, by the actor, so the item keeps by whom it was
// put off.
func (r *Record) putOff(actor string, until, now time.Time, floor int64) *Change {
	w := r.Work
	if w == nil || w.State == StateLeased || w.State == StateDoubt {
		return nil
	}
	queued := w.State == StateReady || w.State == StateWaiting && !w.Due.After(now)
	switch {
	case r.RoundState(now) == RoundDone:
		return r.moved(later(until, r.nextRound(now)), now)
	case !until.After(now) && queued:
		return nil
	case !until.After(now):
		return &Change{ID: r.ID, Work: r.fresh(w.Epoch, now)}
	case r.waitsPutOff(now):
		return r.moved(until, now)
	}
	c := r.verdict(actor, Result{Outcome: OutcomeSnoozed, Delay: until.Sub(now), Code: codePutOff}, now,
		floor)
	c.Work.Failures, c.Work.Crashes, c.Work.Losses, c.Work.Alone = 0, 0, 0, false
	return c
}

// moved is another due time of a waiting record, nil if it is the same.
func (r *Record) moved(due, now time.Time) *Change {
	if due.Equal(r.Work.Due) {
		return nil
	}
	w := r.queue(StateReady, due)
	if due.After(now) {
		w.State = StateWaiting
	}
	return &Change{ID: r.ID, Work: w}
}

// nextRound is when the rhythm of a recurring item has its next round. The current round is over.
func (r *Record) nextRound(now time.Time) time.Time { return r.every().Next(r.Last.Period, now) }

// waitsPutOff reports whether a person put off the open round of a waiting record, or the item if it is worked once.
func (r *Record) waitsPutOff(now time.Time) bool {
	return r.Work != nil && r.Work.State == StateWaiting && r.Work.Due.After(now) && r.Last != nil &&
		r.Last.Outcome == OutcomeSnoozed && r.Last.Code == codePutOff
}

// laterRound reports whether the next round of a recurring item was put off. The current round is done.
func (r *Record) laterRound(now time.Time) bool {
	return r.Every != "" && r.roundOver(now) && r.Last.Closes() == RoundDone && r.Work.Due.After(r.nextRound(now))
}
