package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

// page is how many items one transaction of a bulk act changes: short enough that leases of
// others are renewed in between.
const page = 500

// act applies a rule to every item that matches f, in pages of one transaction each, and
// writes it into the journal. Items to which the rule does not apply are left as they are. It
// returns how many it changed; an error leaves the pages before it changed.
func (l *Ledger) act(ctx context.Context, name, actor string, f Filter, rule func(r *Record, now time.Time) *Change) (int64, error) {
	c := checker{}
	if c.agent(actor); c.err != nil {
		return 0, c.err
	}
	var changed int64
	flush := func(ids []int64) error {
		n, kinds, err := l.actPage(ctx, name, actor, f, ids, rule)
		changed += n
		l.announce(kinds)
		return err
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
	err := flush(ids) // it adds to what is returned
	return changed, err
}

func (l *Ledger) actPage(ctx context.Context, name, actor string, f Filter, ids []int64, rule func(r *Record, now time.Time) *Change) (n int64, kinds []string, err error) {
	err = l.store.Update(ctx, nil, func(tx Tx) error {
		n, kinds = 0, nil
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
		if n = int64(len(changes)); n == 0 {
			return nil
		}
		if err := applyFreeing(tx, recs, changes, &kinds); err != nil {
			return err
		}
		changed := make([]int64, n)
		for i, c := range changes {
			changed[i] = c.ID
		}
		return tx.Journal(JournalEntry{Actor: actor, Action: name, Subject: fmt.Sprintf("items %d … %d", ids[0], ids[len(ids)-1]),
			Detail: idRanges(changed), Changed: n})
	})
	return n, kinds, err
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

// Retry makes dead and doubtful items, and those that wait after a failure, ready now and
// forgets their failures, crashes and losses; a recurring item whose round failed is worked once more
// in the present round. It returns how many. actor is who asks, for the journal.
func (l *Ledger) Retry(ctx context.Context, actor string, f Filter) (int64, error) {
	return l.act(ctx, "retry", actor, f, func(r *Record, now time.Time) *Change {
		w := r.Work
		if w == nil {
			return nil
		}
		switch s := r.RoundState(now); {
		case s == RoundFailed, s == RoundDoubt, w.State == StateWaiting && w.Failures+w.Crashes > 0:
		default:
			return nil
		}
		epoch := w.Epoch
		if w.Reopen {
			epoch = r.Epoch
		}
		return &Change{ID: r.ID, Work: r.fresh(epoch, now)}
	})
}

// Reopen makes completed and cancelled items ready once more, and recurring ones whose current round is
// done: the work is done again, in a new round, or in a new opening of the same period. Items whose
// payload was pruned are left as they are: nothing says any more what is to be done. Add brings one in
// again, with [Again].
func (l *Ledger) Reopen(ctx context.Context, actor string, f Filter) (int64, error) {
	return l.act(ctx, "reopen", actor, f, func(r *Record, now time.Time) *Change {
		if s := r.RoundState(now); s != RoundDone && s != RoundCancelled || r.pruned() {
			return nil
		}
		return &Change{ID: r.ID, Work: r.fresh(r.Epoch+1, now),
			Item: &ItemChange{Fingerprint: r.Fingerprint, Payload: r.Payload, Every: r.Every, Zone: r.Zone, Resources: r.Resources, Epoch: r.Epoch + 1}}
	})
}

// Cancel withdraws unfinished items. Of a running one the context of its handler ends with
// cause ErrCancelled; if it reports done all the same, done stands.
func (l *Ledger) Cancel(ctx context.Context, actor string, f Filter) (int64, error) {
	return l.act(ctx, "cancel", actor, f, func(r *Record, now time.Time) *Change {
		switch {
		case r.Work == nil:
			return nil
		case r.Work.State == StateLeased:
			if r.Work.Cancel {
				return nil
			}
			w := *r.Work
			w.Cancel = true
			return &Change{ID: r.ID, Work: &w}
		}
		return r.verdict(actor, Result{Outcome: OutcomeCancelled}, now)
	})
}

// ForceRelease takes leased items from their holders and makes them ready; started ones of kinds
// with OnLostDoubt come into doubt. A holder that still runs is refused when it reports, but may
// run beside the next one until it notices.
func (l *Ledger) ForceRelease(ctx context.Context, actor string, f Filter) (int64, error) {
	return l.act(ctx, "release", actor, f, func(r *Record, now time.Time) *Change {
		if r.Work == nil || r.Work.State != StateLeased {
			return nil
		}
		// Nobody can know what the holder of a started item has done or still does.
		c := r.settle(Result{Outcome: OutcomeReleased, Code: "forced", NoReport: true}, now, 0)
		return &c
	})
}

// Decide settles a dead or doubtful item on behalf of a person, with done, skipped or
// cancelled. Like every settlement it is one more attempt, by that person, and is journalled.
// Errors: ErrNotFound; ErrInvalid if the item is in another state or the outcome another.
func (l *Ledger) Decide(ctx context.Context, id int64, agent string, res Result) error {
	c := checker{}
	c.agent(agent)
	c.result(&res)
	if !res.Outcome.Completed() && res.Outcome != OutcomeCancelled {
		c.fail("outcome", "%q: a person decides done, skipped or cancelled", string(res.Outcome))
	}
	if len(res.Emit) > 0 {
		c.fail("emit", "a person's decision emits nothing")
	}
	if c.err != nil {
		return c.err
	}
	return l.store.Update(ctx, nil, func(tx Tx) error {
		recs, err := tx.Load([]int64{id})
		if err != nil {
			return err
		}
		if len(recs) == 0 {
			return ErrNotFound
		}
		r := &recs[0]
		if s := r.State(); s != StateDead && s != StateDoubt {
			return &InvalidError{Field: "state", Reason: fmt.Sprintf("item %d is %s; only dead items and those in doubt are decided", id, s)}
		}
		if err := tx.Apply([]Change{*r.verdict(agent, res, tx.Now())}); err != nil {
			return err
		}
		return tx.Journal(JournalEntry{Actor: agent, Action: "decide", Subject: itemSubject(id), Detail: string(res.Outcome), Changed: 1})
	})
}

// verdict ends an unleased item by word of a person: one more attempt without a claim.
func (r *Record) verdict(agent string, res Result, now time.Time) *Change {
	w := *r.Work
	w.Attempt++
	w.Agent, w.LockID, w.LeasedAt = agent, uuid.Nil, now
	decided := *r
	decided.Work = &w
	c := decided.settle(res, now, 0)
	c.Attempt.LeasedAt, c.Attempt.LockID = time.Time{}, ""
	return &c
}

// Forget removes completed and cancelled items altogether, identity included, so that their
// keys may be added again: the end of a scope. Unfinished items are left and counted.
func (l *Ledger) Forget(ctx context.Context, actor string, f Filter) (forgotten, left int64, err error) {
	forgotten, err = l.act(ctx, "forget", actor, f, func(r *Record, now time.Time) *Change {
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
		if k.keep() == KeepForever || total >= limit {
			continue
		}
		n, err := l.store.Prune(ctx, k.Name, now.Add(-k.keep()), limit-total)
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// kindsNow are all kinds, and the database's clock, which decides what is old.
func (l *Ledger) kindsNow(ctx context.Context) ([]Kind, time.Time, error) {
	kinds, err := l.Kinds(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	now, err := l.store.Now(ctx)
	return kinds, now, err
}

// PruneOlder is Prune of what ended longer ago than that, whatever the kinds' Keep, for an operator:
// of all kinds, or of those named. It works in pages and writes into the journal how many there were,
// also when it ends early.
func (l *Ledger) PruneOlder(ctx context.Context, actor string, older time.Duration, names ...string) (pruned int64, err error) {
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
				return tx.Journal(JournalEntry{Actor: actor, Action: "prune", Subject: "kind " + k.Name, Detail: "older than " + older.String(), Changed: ofKind})
			})
			err = errors.Join(err, noted)
		}
		if err != nil {
			return pruned, err
		}
	}
	return pruned, nil
}
