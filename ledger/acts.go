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

// page is the most items that one transaction of a bulk act changes, or that are read at a time. Between two such short
// transactions, other agents can renew their leases.
const page = 500

// act applies a rule to every item that matches f, in pages of one transaction each, and writes the act into the
// journal. Items to which the rule does not apply stay as they are. It returns how many items it changed. After an
// error, the pages that were committed before stay changed. tell, if not nil, is called with the ids of each page after
// its commit.
func (l *Ledger) act(ctx context.Context, name, actor string, f Filter, tell func(ids []int64),
	rule func(r *Record, now time.Time) *Change) (int64, error) {
	c := checker{}
	if c.agent(actor); c.err != nil {
		return 0, c.err
	}
	var changed int64
	bulk := BulkActOf(ctx)
	flush := func(listed []int64) error {
		ids, kinds, err := l.actPage(ctx, bulk, name, actor, f, listed, rule)
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

// actPage is act for one page of ids, in one transaction. It returns the ids of the changed items, and the kinds of
// which items may be claimed now.
func (l *Ledger) actPage(ctx context.Context, bulk *BulkAct, name, actor string, f Filter, ids []int64,
	rule func(r *Record, now time.Time) *Change) (changed []int64, kinds []string, err error) {
	var entry JournalEntry
	err = l.store.Update(ctx, nil, func(tx Tx) error {
		changed, kinds = nil, nil
		recs, err := tx.Load(ids)
		if err != nil {
			return err
		}
		var outputs map[int64][]byte
		if f.asksOutput() {
			if outputs, err = tx.Outputs(ids); err != nil {
				return err
			}
		}
		var changes []Change
		for i := range recs {
			recs[i].Output = outputs[recs[i].ID]
			if !f.Match(&recs[i], tx.Now()) { // the item was changed since it was listed
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
		entry = bulk.entry(actor, name, recs, changes)
		return tx.Journal(entry)
	})
	if err == nil && len(changed) > 0 {
		bulk.written(name, entry)
	}
	return changed, kinds, err
}

// ActOption changes how an act on items is done.
type ActOption func(*ActOptions)

// ActOptions holds the options of acts as values, for a program that sends an act to the program with the ledger.
type ActOptions struct {
	Priority *int16            // of WithPriority
	Round    bool              // of ThisRound
	Reason   string            // of WithReason
	Tell     func(ids []int64) `json:"-"` // of OnChanged
}

// WithPriority sets the priority of the items, bounds.MinPriority … bounds.MaxPriority. They keep it until they are
// done. Recurring items keep it in later rounds, unless ThisRound is given as well. Without WithPriority the priority
// stays. It is for Retry and Reopen.
func WithPriority(p int16) ActOption { return func(o *ActOptions) { o.Priority = &p } }

// ThisRound limits the priority of WithPriority or Place to the current round. When the round is done, has failed for
// good or is cancelled, each item gets its earlier priority back.
func ThisRound() ActOption { return func(o *ActOptions) { o.Round = true } }

// WithReason stores a text as the error of the attempts that the act writes. It is for Cancel.
func WithReason(text string) ActOption { return func(o *ActOptions) { o.Reason = text } }

// OnChanged calls tell with the ids of changed items, a page at a time, each after the commit of that page.
func OnChanged(tell func(ids []int64)) ActOption { return func(o *ActOptions) { o.Tell = tell } }

// Of returns the values that some options set, with the reason as it is stored: cut, and valid UTF-8 without NUL.
func (ActOptions) Of(how ...ActOption) (o ActOptions) {
	for _, set := range how {
		set(&o)
	}
	o.Reason = head(clean(o.Reason), bounds.MaxError)
	return o
}

// Option returns one option that sets all of these values.
func (o ActOptions) Option() ActOption { return func(all *ActOptions) { *all = o } }

// actOptions returns the values that some options set, and checks them.
func actOptions(how []ActOption) (ActOptions, error) {
	o, c := ActOptions{}.Of(how...), checker{}
	if o.Priority != nil {
		c.priority(*o.Priority)
	}
	return o, c.err
}

// open returns a backlog row for an item that is opened again.
func (o ActOptions) open(r *Record, epoch int64, now time.Time) *Work {
	w := r.fresh(epoch, now)
	o.place(w)
	return w
}

// place sets the priority of the act in a row of the backlog, if the act has one.
func (o ActOptions) place(w *Work) {
	switch {
	case o.Priority == nil:
		return
	case !o.Round:
		w.Usual = nil
	case w.Usual == nil && w.Priority != *o.Priority:
		usual := w.Priority
		w.Usual = &usual
	}
	w.Priority = *o.Priority
}

// Retry makes dead and doubtful items, and items that wait after a failure, ready now, and sets their failures, crashes
// and losses to 0. A recurring item whose round failed is worked once more in the current round. An item that a person
// put off is ready now; if it was the next round of a recurring item, that is due at its regular time again. Retry
// returns how many items it changed. The journal names actor as the operator.
func (l *Ledger) Retry(ctx context.Context, actor string, f Filter, how ...ActOption) (int64, error) {
	o, err := actOptions(how)
	if err != nil {
		return 0, err
	}
	return l.act(ctx, "retry", actor, f, o.Tell, func(r *Record, now time.Time) *Change {
		if r.nextPutOff(now) {
			return r.withDue(r.nextRound(now), now)
		}
		if !r.retried(now) {
			return nil
		}
		return &Change{ID: r.ID, Work: o.open(r, r.Epoch, now)}
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

// Place gives a priority to items that are ready, and to items that wait without having failed. They stay due at the
// same time. For items that failed or ended, see Retry and Reopen with WithPriority. It returns how many items it
// changed.
func (l *Ledger) Place(ctx context.Context, actor string, f Filter, priority int16, how ...ActOption) (int64, error) {
	o, err := actOptions(append(slices.Clip(how), WithPriority(priority)))
	if err != nil {
		return 0, err
	}
	return l.act(ctx, "place", actor, f, o.Tell, func(r *Record, now time.Time) *Change {
		if r.RoundState(now) != RoundOpen || r.Work.State == StateLeased || r.retried(now) {
			return nil
		}
		w := r.queue(r.Work.State, r.Work.Due)
		o.place(w)
		return &Change{ID: r.ID, Work: w}
	})
}

// Reopen makes completed and cancelled items ready once more, and recurring ones whose current round is done. The work
// is done again, in a new round, or in a new opening of the same period. Items whose payload was pruned stay as they
// are, because nothing is left to work on. Add with [Again] opens such an item with a new payload.
func (l *Ledger) Reopen(ctx context.Context, actor string, f Filter, how ...ActOption) (int64, error) {
	o, err := actOptions(how)
	if err != nil {
		return 0, err
	}
	return l.act(ctx, actionReopen, actor, f, o.Tell, func(r *Record, now time.Time) *Change {
		if s := r.RoundState(now); s != RoundDone && s != RoundCancelled || r.pruned() {
			return nil
		}
		return &Change{ID: r.ID, Work: o.open(r, r.Epoch+1, now),
			Item: &ItemChange{Fingerprint: r.Fingerprint, Payload: r.Payload, Every: r.Every, Zone: r.Zone, Trace: r.Trace,
				Epoch: r.Epoch + 1}}
	})
}

// Cancel withdraws unfinished items in the version that they have: another fingerprint opens them again. If the item is
// being worked, the context of its handler ends with cause ErrCancelled, and the item is cancelled when its attempt
// ends. If the attempt is done all the same, its outcome stands: an item that is worked once is then done, and a
// recurring one is cancelled.
func (l *Ledger) Cancel(ctx context.Context, actor string, f Filter, how ...ActOption) (int64, error) {
	o, err := actOptions(how)
	if err != nil {
		return 0, err
	}
	return l.act(ctx, "cancel", actor, f, o.Tell, func(r *Record, now time.Time) *Change {
		switch {
		case r.Work == nil:
			return nil
		case r.Work.State == StateLeased:
			if r.Work.Cancel && !r.Work.Reopen {
				return nil
			}
			w := *r.Work
			w.Cancel, w.CancelReason = true, o.Reason
			w.Reopen = false // a newer version that waits for the end of the attempt is withdrawn as well
			return &Change{ID: r.ID, Work: &w}
		}
		return r.verdict(actor, Result{Outcome: OutcomeCancelled, Error: o.Reason}, now, l.floor())
	})
}

// ForceRelease takes leased items from their holders and makes them ready. Started items of kinds with OnLostDoubt come
// into doubt. A holder that still runs is refused when it reports, but until then it may run beside the next one.
func (l *Ledger) ForceRelease(ctx context.Context, actor string, f Filter, how ...ActOption) (int64, error) {
	o, err := actOptions(how)
	if err != nil {
		return 0, err
	}
	return l.act(ctx, "release", actor, f, o.Tell, func(r *Record, now time.Time) *Change {
		if r.Work == nil || r.Work.State != StateLeased {
			return nil
		}
		// The ledger cannot know what the holder of a started item has done or still does.
		c := r.settle(Result{Outcome: OutcomeReleased, Code: "forced", NoReport: true}, now, 0)
		return &c
	})
}

// Decide ends a dead or doubtful item by decision of a person, with done, skipped or cancelled. An item in doubt may
// also be decided as failed: it is then dead. Each decision is one more attempt, with the person as its agent, and
// stands in the journal. Errors: ErrNotFound; ErrInvalid if the item is in another state or the outcome is another one.
func (l *Ledger) Decide(ctx context.Context, id int64, agent string, res Result) error {
	if err := checkDecision(agent, &res); err != nil {
		return err
	}
	if err := l.fit(ctx, nil); err != nil {
		return err
	}
	bulk := BulkActOf(ctx).asking(string(res.Outcome))
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
		entry = bulk.entry(agent, actDecide, recs, []Change{*c})
		return tx.Journal(entry)
	})
	if err == nil {
		bulk.written(actDecide, entry)
	}
	return err
}

// DecideAll makes the same decision about every item that matches and allows it. Other items stay as they are. It
// returns how many items it decided. See Decide.
func (l *Ledger) DecideAll(ctx context.Context, agent string, f Filter, res Result, how ...ActOption) (int64, error) {
	o, err := actOptions(how)
	if err == nil {
		err = checkDecision(agent, &res)
	}
	if err != nil {
		return 0, err
	}
	ctx = BulkActOf(ctx).asking(string(res.Outcome)).With(ctx)
	return l.act(ctx, actDecide, agent, f, o.Tell, func(r *Record, now time.Time) *Change {
		return r.decided(agent, res, now, l.floor())
	})
}

const actDecide = "decide"

// checkDecision refuses outcomes that a person cannot decide. A failure that a person decides is not tried again.
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

// decided returns the change that a decision makes to an item; nil if the state of the item does not allow it.
func (r *Record) decided(agent string, res Result, now time.Time, floor int64) *Change {
	if s := r.State(); s != StateDoubt && (s != StateDead || res.Outcome == OutcomeFailed) {
		return nil
	}
	return r.verdict(agent, res, now, floor)
}

// verdict returns the change that a person's decision, Cancel or PutOff makes to an item that is not leased: one more
// attempt, without a claim.
// Unless the outcome is done, the attempt keeps the code of the last failure, and the error unless res has a reason.
func (r *Record) verdict(agent string, res Result, now time.Time, floor int64) *Change {
	if r.Last != nil && r.Last.Outcome.FailedOrUncertain() && res.Outcome != OutcomeDone {
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

// Forget removes completed and cancelled items with their identity, so that their keys may be added again. It is for
// the end of a scope. Unfinished items stay: left is their number.
func (l *Ledger) Forget(ctx context.Context, actor string, f Filter, how ...ActOption) (forgotten, left int64,
	err error) {
	o, err := actOptions(how)
	if err != nil {
		return 0, 0, err
	}
	forgotten, err = l.act(ctx, "forget", actor, f, o.Tell, func(r *Record, now time.Time) *Change {
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

// Prune removes payload, output and all but the newest attempt of items that ended longer ago than the Keep of their
// kind, of up to limit items per call. It returns how many it pruned. Every worker calls it regularly.
func (l *Ledger) Prune(ctx context.Context, limit int) (int, error) {
	kinds, now, err := l.kindsNow(ctx)
	if err != nil {
		return 0, err
	}
	total := 0
	for _, k := range kinds {
		keep := k.WithDefaults().Keep
		if keep == KeepForever || total >= limit {
			continue
		}
		n, err := l.store.Prune(ctx, k.Name, now.Add(-keep), limit-total)
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

// PruneOlder prunes what ended longer ago than older, whatever Keep of the kinds is, for an operator: of all kinds, or
// of the named ones. It works in pages. It writes the number of pruned items into the journal, also when it ends early
// with an error.
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
		for n := page; n > 0 && err == nil; { // fewer than a page: another process has changed some of them
			n, err = l.store.Prune(ctx, k.Name, now.Add(-older), page)
			ofKind += int64(n)
		}
		if pruned += ofKind; ofKind > 0 {
			noted := l.store.Update(context.WithoutCancel(ctx), nil, func(tx Tx) error {
				return tx.Journal(JournalEntry{Actor: actor, Action: "prune", Subject: "kind " + k.Name, Detail: "older than " +
					inUnits(older), Changed: ofKind})
			})
			err = errors.Join(err, noted)
		}
		if err != nil {
			return pruned, err
		}
	}
	return pruned, nil
}
