package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/ledger/bounds"
)

// page is how many items one transaction of a bulk act changes: short enough that leases of
// others are renewed in between.
const page = 500

// act applies a rule to every item that matches f, in pages of one transaction each, and
// writes it into the journal. Items to which the rule does not apply are left as they are. It
// returns how many it changed; an error leaves the pages before it changed. tell, if it is not nil, is
// given the ids of each page after its commit.
func (l *Ledger) act(ctx context.Context, name, actor string, f Filter, tell func(ids []int64),
	rule func(r *Record, now time.Time) *Change) (int64, error) {
	c := checker{}
	if c.agent(actor); c.err != nil {
		return 0, c.err
	}
	var changed int64
	under := BulkActOf(ctx)
	flush := func(page []int64) error {
		ids, kinds, err := l.actPage(ctx, under, name, actor, f, page, rule)
		if err != nil {
			return err
		}
		changed += int64(len(ids))
		l.announce(kinds)
		if tell != nil && len(ids) > 0 {
			tell(ids)
		}
		return nil
	}
	ids := make([]int64, 0, page)
	for it, err := range l.List(ctx, f, 0) {
		if err != nil {
			return changed, err
		}
		if ids = append(ids, it.ID); len(ids) == page {
			if err := flush(ids); err != nil {
				return changed, err
			}
			ids = ids[:0]
		}
	}
	if len(ids) == 0 {
		return changed, nil
	}
	err := flush(ids) // before changed is read
	return changed, err
}

func (l *Ledger) actPage(ctx context.Context, under *BulkAct, name, actor string, f Filter, ids []int64,
	rule func(r *Record, now time.Time) *Change) (
	changed []int64, kinds []string, err error) {
	var entry JournalEntry
	err = l.store.Update(ctx, nil, func(tx Tx) error {
		changed, kinds = nil, nil
		recs, err := tx.Load(ids)
		if err != nil {
			return err
		}
		var changes []Change
		for i := range recs {
			if f.asksOutput() {
				attempts, err := tx.Attempts(recs[i].ID)
				if err != nil {
					return err
				}
				recs[i].Output = newestOutput(attempts)
			}
			if !f.Match(&recs[i], tx.Now()) { // it moved on since it was listed
				continue
			}
			if c := rule(&recs[i], tx.Now()); c != nil {
				changes = append(changes, *c)
				if c.Work != nil && c.Work.State == StateReady {
					kinds = append(kinds, recs[i].Kind)
				}
			}
		}
		if len(changes) == 0 {
			return nil
		}
		if err := applyEnds(tx, recs, changes, &kinds); err != nil {
			return err
		}
		for _, c := range changes {
			changed = append(changed, c.ID)
		}
		entry = under.entry(actor, name, recs, changes)
		return tx.Journal(entry)
	})
	if err == nil && len(changed) > 0 {
		under.written(name, entry)
	}
	return changed, kinds, err
}

// newestOutput is that of the newest attempt that has one.
func newestOutput(attempts []Attempt) []byte {
	for _, a := range slices.Backward(attempts) {
		if len(a.Output) > 0 {
			return a.Output
		}
	}
	return nil
}

// Acting is an option of acts on items.
type Acting func(*acting)

type acting struct {
	priority *int16
	round    bool // the priority is for this round
	reason   string
	tell     func(ids []int64)
}

// WithPriority sets the priority of the items, bounds.MinPriority … bounds.MaxPriority. They keep it until they are
// done. Recurring items keep it in later rounds, unless ThisRound is given as well. Without WithPriority the priority
// stays. It is for Retry and Reopen.
func WithPriority(p int16) Acting { return func(r *acting) { r.priority = &p } }

// ThisRound gives the items the priority that they had back when their round has ended: is done, failed for good or
// cancelled. It goes with WithPriority and Place.
func ThisRound() Acting { return func(r *acting) { r.round = true } }

// WithReason keeps a text as the error of the attempts that the act writes. It is for Cancel.
func WithReason(text string) Acting {
	return func(r *acting) { r.reason = head(clean(text), bounds.MaxError) }
}

// Telling is called with the ids of items that were changed, some at a time, each time after the commit.
func Telling(tell func(ids []int64)) Acting { return func(r *acting) { r.tell = tell } }

// newActing applies the options.
func newActing(how []Acting) (r acting, err error) {
	for _, set := range how {
		set(&r)
	}
	c := checker{}
	if r.priority != nil {
		c.priority(*r.priority)
	}
	return r, c.err
}

// ActOptions are options of acts as values, for a program that carries an act to where the ledger is.
type ActOptions struct {
	Priority *int16            // of WithPriority
	Round    bool              // of ThisRound
	Reason   string            // of WithReason
	Tell     func(ids []int64) `json:"-"` // of Telling
}

// Of are the options that some options set.
func (o ActOptions) Of(how ...Acting) ActOptions {
	var a acting
	for _, set := range how {
		set(&a)
	}
	return ActOptions{Priority: a.priority, Round: a.round, Reason: a.reason, Tell: a.tell}
}

// Acting are the options as acts take them.
func (o ActOptions) Acting() Acting {
	return func(a *acting) {
		*a = acting{priority: o.Priority, round: o.Round, reason: head(clean(o.Reason), bounds.MaxError), tell: o.Tell}
	}
}

// open is a backlog row for an item that is opened again.
func (r acting) open(rec *Record, epoch int64, now time.Time) *Work {
	w := rec.fresh(epoch, now)
	r.place(w)
	return w
}

// place gives a row of the backlog the priority that was asked for, if any was.
func (r acting) place(w *Work) {
	switch {
	case r.priority == nil:
		return
	case !r.round:
		w.Usual = nil
	case w.Usual == nil && w.Priority != *r.priority:
		usual := w.Priority
		w.Usual = &usual
	}
	w.Priority = *r.priority
}

// Retry makes dead and doubtful items, and those that wait after a failure, ready now and
// forgets their failures, crashes and losses; a recurring item whose round failed is worked once more
// in the present round. It returns how many. actor is who asks, for the journal.
func (l *Ledger) Retry(ctx context.Context, actor string, f Filter, how ...Acting) (int64, error) {
	as, err := newActing(how)
	if err != nil {
		return 0, err
	}
	return l.act(ctx, "retry", actor, f, as.tell, func(r *Record, now time.Time) *Change {
		if r.laterRound(now) {
			return r.moved(r.nextRound(now), now)
		}
		if !r.retried(now) {
			return nil
		}
		return &Change{ID: r.ID, Work: as.open(r, r.Epoch, now)}
	})
}

// retried reports whether Retry makes the item ready.
func (r *Record) retried(now time.Time) bool {
	w := r.Work
	if w == nil {
		return false
	}
	s := r.RoundState(now)
	return s == RoundFailed || s == RoundDoubt || r.waitsPutOff(now) ||
		w.State == StateWaiting && w.Failures+w.Crashes > 0 && !r.untried(now)
}

// Place gives items that are ready, or that wait without having failed, a priority; when they are due stays as it is.
// Retry and Reopen take what has failed or ended, see WithPriority. It returns how many.
func (l *Ledger) Place(ctx context.Context, actor string, f Filter, priority int16, how ...Acting) (int64, error) {
	as, err := newActing(append(how, WithPriority(priority)))
	if err != nil {
		return 0, err
	}
	return l.act(ctx, "place", actor, f, as.tell, func(r *Record, now time.Time) *Change {
		if r.RoundState(now) != RoundOpen || r.Work.State == StateLeased || r.retried(now) {
			return nil
		}
		w := r.queue(r.Work.State, r.Work.Due)
		as.place(w)
		return &Change{ID: r.ID, Work: w}
	})
}

// Reopen makes completed and cancelled items ready once more, and recurring ones whose current round is
// done: the work is done again, in a new round, or in a new opening of the same period. Items whose
// payload was pruned are left as they are: their payload is gone. Add brings one in
// again, with [Again].
func (l *Ledger) Reopen(ctx context.Context, actor string, f Filter, how ...Acting) (int64, error) {
	as, err := newActing(how)
	if err != nil {
		return 0, err
	}
	return l.act(ctx, actionReopen, actor, f, as.tell, func(r *Record, now time.Time) *Change {
		if s := r.RoundState(now); s != RoundDone && s != RoundCancelled || r.pruned() {
			return nil
		}
		return &Change{ID: r.ID, Work: as.open(r, r.Epoch+1, now),
			Item: &ItemChange{Fingerprint: r.Fingerprint, Payload: r.Payload, Every: r.Every, Zone: r.Zone, Trace: r.Trace,
				Epoch: r.Epoch + 1}}
	})
}

// Cancel withdraws unfinished items, in the version that they have: another fingerprint opens them again. Of a
// running one the context of its handler ends with cause ErrCancelled, and the item is cancelled when its attempt
// ends. If the attempt is done all the same, its outcome stands: an item that is worked once is done then, a recurring
// one is cancelled.
func (l *Ledger) Cancel(ctx context.Context, actor string, f Filter, how ...Acting) (int64, error) {
	as, err := newActing(how)
	if err != nil {
		return 0, err
	}
	return l.act(ctx, "cancel", actor, f, as.tell, func(r *Record, now time.Time) *Change {
		switch {
		case r.Work == nil:
			return nil
		case r.Work.State == StateLeased:
			if r.Work.Cancel && !r.Work.Reopen {
				return nil
			}
			w := *r.Work
			w.Cancel, w.CancelReason = true, as.reason
			w.Reopen = false // a newer version that waits for the end of the attempt is withdrawn, too
			return &Change{ID: r.ID, Work: &w}
		}
		return r.verdict(actor, Result{Outcome: OutcomeCancelled, Error: as.reason}, now, l.floor())
	})
}

// ForceRelease takes leased items from their holders and makes them ready; started ones of kinds
// with OnLostDoubt come into doubt. A holder that still runs is refused when it reports, but may
// run beside the next one until it notices.
func (l *Ledger) ForceRelease(ctx context.Context, actor string, f Filter, how ...Acting) (int64, error) {
	as, err := newActing(how)
	if err != nil {
		return 0, err
	}
	return l.act(ctx, "release", actor, f, as.tell, func(r *Record, now time.Time) *Change {
		if r.Work == nil || r.Work.State != StateLeased {
			return nil
		}
		// It cannot be known what the holder of a started item has done or still does.
		c := r.settle(Result{Outcome: OutcomeReleased, Code: "forced", NoReport: true}, now, 0)
		return &c
	})
}

// Decide settles a dead or doubtful item on behalf of a person, with done, skipped or cancelled, and one in doubt also
// with failed: it is dead then. Like every settlement it is one more attempt, by that person, and is journalled.
// Errors: ErrNotFound; ErrInvalid if the item is in another state or the outcome another.
func (l *Ledger) Decide(ctx context.Context, id int64, agent string, res Result) error {
	if err := checkDecision(agent, &res); err != nil {
		return err
	}
	under := BulkActOf(ctx)
	under.Asked = cmp.Or(under.Asked, string(res.Outcome))
	var entry JournalEntry
	err := l.store.Update(ctx, nil, func(tx Tx) error {
		recs, err := tx.Load([]int64{id})
		if err != nil {
			return err
		}
		if len(recs) == 0 {
			return ErrNotFound
		}
		c := recs[0].decided(agent, res, tx.Now(), l.floor())
		if c == nil {
			return &InvalidError{Field: "state", Reason: fmt.Sprintf("item %d is %s", id, recs[0].State()),
				Hint: "only dead items and those in doubt are decided; failed is for those in doubt"}
		}
		if err := tx.Apply([]Change{*c}); err != nil {
			return err
		}
		entry = under.entry(agent, actDecide, recs, []Change{*c})
		return tx.Journal(entry)
	})
	if err == nil {
		under.written(actDecide, entry)
	}
	return err
}

// DecideAll is Decide of every item that matches and that may be decided so; others are left as they are. It returns
// how many it decided.
func (l *Ledger) DecideAll(ctx context.Context, agent string, f Filter, res Result, how ...Acting) (int64, error) {
	as, err := newActing(how)
	if err == nil {
		err = checkDecision(agent, &res)
	}
	if err != nil {
		return 0, err
	}
	return l.act(ctx, actDecide, agent, f, as.tell, func(r *Record, now time.Time) *Change {
		return r.decided(agent, res, now, l.floor())
	})
}

const actDecide = "decide"

// checkDecision refuses what a person cannot decide. A failure that a person decides is not tried again.
func checkDecision(agent string, res *Result) error {
	c := checker{}
	c.agent(agent)
	c.result(res)
	if o := res.Outcome; !o.Completed() && o != OutcomeCancelled && o != OutcomeFailed {
		c.fail("outcome", "%q: a person decides done, skipped, cancelled or failed", string(o))
	}
	if len(res.Emit) > 0 {
		c.fail("emit", "a person's decision emits nothing")
	}
	res.Final = res.Outcome == OutcomeFailed
	return c.err
}

// decided is the decision about an item; nil if it may not be decided so.
func (r *Record) decided(agent string, res Result, now time.Time, floor int64) *Change {
	if s := r.State(); s != StateDoubt && (s != StateDead || res.Outcome == OutcomeFailed) {
		return nil
	}
	return r.verdict(agent, res, now, floor)
}

// verdict ends an unleased item by word of a person: one more attempt without a claim. Unless it is done, it keeps the
// code of the failure before, and its text unless there is a reason.
func (r *Record) verdict(agent string, res Result, now time.Time, floor int64) *Change {
	if r.Last != nil && r.Last.Outcome.Fails() && res.Outcome != OutcomeDone {
		res.Code, res.Error = cmp.Or(res.Code, r.Last.Code), cmp.Or(res.Error, r.Last.Error)
	}
	w := *r.Work
	w.Attempt = next(w.Attempt, floor)
	w.Agent, w.LockID, w.LeasedAt = agent, uuid.Nil, now
	decided := *r
	decided.Work = &w
	c := decided.settle(res, now, 0)
	c.Attempt.DueAt, c.Attempt.LeasedAt, c.Attempt.LockID = time.Time{}, time.Time{}, ""
	return &c
}

// Forget removes completed and cancelled items altogether, identity included, so that their
// keys may be added again: the end of a scope. Unfinished items are left and counted.
func (l *Ledger) Forget(ctx context.Context, actor string, f Filter, how ...Acting) (forgotten, left int64, err error) {
	as, err := newActing(how)
	if err != nil {
		return 0, 0, err
	}
	forgotten, err = l.act(ctx, "forget", actor, f, as.tell, func(r *Record, now time.Time) *Change {
		if r.Work != nil {
			return nil
		}
		return &Change{ID: r.ID, Forget: true}
	})
	if err != nil {
		return forgotten, 0, err
	}
	left, err = l.Count(ctx, f)
	return forgotten, left, err
}

// Prune applies each kind's Keep: of items that ended longer ago it removes payload, output
// and all but the newest attempt, up to limit items per call. It returns how many it pruned.
// Every worker does it now and then.
func (l *Ledger) Prune(ctx context.Context, limit int) (int, error) {
	kinds, now, err := l.kindsNow(ctx)
	if err != nil {
		return 0, err
	}
	total := 0
	for _, k := range kinds {
		if k.WithDefaults().Keep == KeepForever || total >= limit {
			continue
		}
		n, err := l.store.Prune(ctx, k.Name, now.Add(-k.WithDefaults().Keep), limit-total)
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// kindsNow returns all kinds, and the time of the database's clock.
func (l *Ledger) kindsNow(ctx context.Context) ([]Kind, time.Time, error) {
	kinds, err := l.Kinds(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	now, err := l.store.Now(ctx)
	return kinds, now, err
}

// PruneOlder is Prune of what ended longer ago than that, in spite of the kinds' Keep, for an operator:
// of all kinds, or of those named. It works in pages and writes into the journal how many there were,
// also when it ends early.
func (l *Ledger) PruneOlder(ctx context.Context, actor string, older time.Duration, names ...string) (pruned int64,
	err error) {
	c := checker{}
	if c.agent(actor); c.err != nil {
		return 0, c.err
	}
	if older < 0 {
		return 0, &InvalidError{Field: "older", Reason: older.String() + ", must not be negative"}
	}
	kinds, now, err := l.kindsNow(ctx)
	if err != nil {
		return 0, err
	}
	for _, k := range kinds {
		if len(names) > 0 && !slices.Contains(names, k.Name) {
			continue
		}
		var ofKind int64
		for n := page; n == page && err == nil; {
			n, err = l.store.Prune(ctx, k.Name, now.Add(-older), page)
			ofKind += int64(n)
		}
		if pruned += ofKind; ofKind > 0 {
			noted := l.store.Update(context.WithoutCancel(ctx), nil, func(tx Tx) error {
				return tx.Journal(JournalEntry{Actor: actor, Action: "prune", Subject: "kind " + k.Name, Detail: "older than " +
					older.String(), Changed: ofKind})
			})
			err = errors.Join(err, noted)
		}
		if err != nil {
			return pruned, err
		}
	}
	return pruned, nil
}
