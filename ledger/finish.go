package ledger

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// Finish ends leases, at most bounds.MaxBatch, and returns one error per ending: nil, ErrLeaseLost, ErrInvalid or
// ErrUnavailable. After a commit without an answer, Finish reads whether it took effect before it returns. Finishing
// the same lease twice with the same outcome returns nil both times.
func (l *Ledger) Finish(ctx context.Context, e ...Ending) []error {
	// If it is not known whether a commit took effect, repeat: endings that are stored already are recognised.
	errs := l.finish(ctx, nil, e, nil)
	if slices.ContainsFunc(errs, isUnavailable) && ctx.Err() == nil {
		errs = l.finish(ctx, nil, e, nil)
	}
	return errs
}

func isUnavailable(err error) bool { return errors.Is(err, ErrUnavailable) }

// FinishAndClaim is Finish and then ClaimWithin, in one call to the database if all endings are done or skipped and
// emit nothing. If that call fails, it only ends the leases, claims nothing, and returns the error as err. It is for
// workers that take few items at a time.
func (l *Ledger) FinishAndClaim(ctx context.Context, c Claim, e ...Ending) (errs []error, leases []*Lease,
	held scheduler.HeldBack, err error) {
	g, err := l.grant(ctx, c)
	if err != nil {
		return l.Finish(ctx, e...), nil, held, err
	}
	called := time.Now()
	got := Claimed{More: true} // nothing is claimed yet
	errs = l.finish(ctx, nil, e, func(fast []Completion) (landed []int64, failed error) {
		if len(fast) < len(e) {
			return l.store.Complete(ctx, nil, fast)
		}
		if landed, got, failed = l.store.CompleteAndClaim(ctx, fast, g); !got.More {
			err = failed // that call was to claim as well, so the claim failed with it
		}
		return landed, failed
	})
	if err != nil || slices.ContainsFunc(errs, isUnavailable) && ctx.Err() == nil {
		errs = l.Finish(ctx, e...)
	}
	if err != nil {
		return errs, nil, held, err
	}
	if len(got.Records) == 0 { // the claim was not part of that call and begins here
		called = time.Now()
	}
	leases, held, err = l.newLeases(ctx, g, called, got)
	return errs, leases, held, err
}

// FinishTx is Finish inside the caller's transaction: the writes of the handler and the end of the item commit
// together. If any lease was lost it returns an error and the caller rolls back. A lease that has ended before, in any
// way, is ErrLeaseLost. So a transaction whose COMMIT got no answer may be repeated as a whole without taking effect
// twice.
//
// FinishTx does not count the end in the statistics: the transaction may be rolled back, and transactions would wait
// for each other in the row of a tally. A worker counts it when its handler returns Recorded. A program without a
// worker adds the Tally of Lease.Ended with AddTallies after the commit.
func (l *Ledger) FinishTx(ctx context.Context, tx Conn, e ...Ending) error {
	if tx == nil {
		return errNilTx
	}
	if err := cmp.Or(l.finish(ctx, tx, e, nil)...); err != nil {
		return err
	}
	for _, end := range e {
		end.Lease.ended = &end
	}
	return nil
}

// finish ends leases. complete, or Store.Complete if it is nil, ends those that it can; the rules end the others, in
// one transaction.
func (l *Ledger) finish(ctx context.Context, conn Conn, e []Ending,
	complete func([]Completion) ([]int64, error)) []error {
	if complete == nil {
		complete = func(c []Completion) ([]int64, error) { return l.store.Complete(ctx, conn, c) }
	}
	errs := make([]error, len(e))
	if len(e) > bounds.MaxBatch {
		err := &InvalidError{Field: "endings", Reason: number.Sprintf("%d, at most %d", len(e), bounds.MaxBatch)}
		return slices.Repeat([]error{err}, len(e))
	}
	if i := slices.IndexFunc(e, func(e Ending) bool { return e.Lease == nil }); i >= 0 {
		return slices.Repeat([]error{&InvalidError{Index: i, Field: "lease", Reason: "is missing"}}, len(e))
	}
	results, fast, pending := checkEndings(ctx, e, errs)
	if len(fast) > 0 {
		landed, err := complete(fast)
		if err != nil {
			return failPending(errs, pending, err)
		}
		drop(pending, fast, landed)
		for i := range e {
			if _, left := pending[e[i].Lease.ref()]; errs[i] == nil && !left {
				e[i].Recorded, e[i].State, e[i].Round = results[i].Outcome, StateDone, RoundDone
			}
		}
	}
	if len(pending) == 0 {
		if conn == nil {
			l.announce(limitedKinds(e))
		}
		return errs
	}
	var kinds []string
	err := l.store.Update(ctx, conn, func(tx Tx) error {
		kinds = limitedKinds(e)
		return l.settleIn(tx, e, results, slices.Sorted(maps.Values(pending)), errs, conn != nil, &kinds)
	})
	if err != nil {
		return failPending(errs, pending, err)
	}
	if conn == nil {
		l.announce(kinds)
	}
	return errs
}

// checkEndings checks each ending and sets the errors of the wrong ones in errs. It returns the results in the form
// that is stored, the completions that Store.Complete can write, and the indices of the endings without an error.
func checkEndings(ctx context.Context, e []Ending, errs []error) (results []Result, fast []Completion,
	pending map[LeaseRef]int) {
	results = make([]Result, len(e))
	fast = make([]Completion, 0, len(e))
	pending = make(map[LeaseRef]int, len(e))
	named := make(map[int64]bool, len(e))
	for i := range e {
		results[i] = e[i].Result
		r := &results[i]
		c := checker{index: i}
		if c.result(r); c.err != nil {
			errs[i] = c.err
			continue
		}
		if len(r.Emit) > 0 {
			r.Emit = withTrace(ctx, r.Emit)
		}
		ref := e[i].Lease.ref()
		if _, twice := pending[ref]; twice {
			errs[i] = &InvalidError{Index: i, Field: "lease", Reason: e[i].Lease.Token() + " is ended twice in one call"}
			continue
		}
		pending[ref] = i
		// Complete returns ids of items, so a second lease of the same item is left to the rules.
		first := !named[ref.ItemID]
		named[ref.ItemID] = true
		if first && r.Outcome.Completed() && len(r.Emit) == 0 && e[i].Lease.Every == "" {
			fast = append(fast, Completion{LeaseRef: ref, Outcome: r.Outcome, Worker: r.Worker, Code: r.Code, Error: r.Error,
				Log: r.Log, Output: r.Output})
		}
	}
	return results, fast, pending
}

// limitedKinds returns the kinds with limits whose leases were ended: other items may be claimed in their place.
func limitedKinds(e []Ending) (kinds []string) {
	for i := range e {
		if ls := e[i].Lease; ls.limited && !slices.Contains(kinds, ls.Kind) {
			kinds = append(kinds, ls.Kind)
		}
	}
	return kinds
}

// failPending sets the error of all pending endings.
func failPending(errs []error, pending map[LeaseRef]int, err error) []error {
	for _, i := range pending {
		errs[i] = err
	}
	return errs
}

// drop removes the completions that landed from pending; landed has the ids of their items.
func drop(pending map[LeaseRef]int, fast []Completion, landed []int64) {
	if len(landed) == len(pending) && len(landed) == len(fast) { // the usual case
		clear(pending)
		return
	}
	done := make(map[int64]bool, len(landed))
	for _, id := range landed {
		done[id] = true
	}
	for _, c := range fast {
		if done[c.ItemID] {
			delete(pending, c.LeaseRef)
		}
	}
}

// settleIn ends leases by the rules, in a transaction: the endings in e with these indices. It adds to kinds the kinds
// whose items it made ready. For once see settleOne.
func (l *Ledger) settleIn(tx Tx, e []Ending, results []Result, indices []int, errs []error, once bool,
	kinds *[]string) error {
	ids := make([]int64, len(indices))
	for k, i := range indices {
		ids[k] = e[i].Lease.ID
	}
	found, err := tx.Load(ids)
	if err != nil {
		return err
	}
	recs := make(map[int64]*Record, len(found))
	for i := range found {
		recs[found[i].ID] = &found[i]
	}
	var changes []Change
	var emit []NewItem
	for _, i := range indices {
		ls := e[i].Lease
		var c *Change
		c, errs[i], err = l.settleOne(tx, recs[ls.ID], &e[i], results[i], once)
		if err != nil {
			return err
		}
		if c == nil {
			continue
		}
		changes = append(changes, *c)
		parent := recs[ls.ID]
		delete(recs, ls.ID) // its record has changed: another ending of the same item is refused
		if c.Work != nil && c.Work.State == StateReady {
			*kinds = append(*kinds, ls.Kind)
		}
		if !c.Attempt.Outcome.Completed() { // the round was completed by an earlier attempt
			continue
		}
		for _, n := range results[i].Emit {
			emit = append(emit, child(n, ls, parent.Trace))
			*kinds = append(*kinds, n.Kind)
		}
	}
	if err := applyEnds(tx, found, changes, kinds); err != nil {
		return err
	}
	if len(emit) > 0 {
		_, err = l.addIn(tx, emit)
	}
	return err
}

// settleOne decides about one ending. r is the record of its item, nil if there is none. It returns the change, nil for
// none; the error of this ending; or an error that fails all endings. With once, an ending that was stored before is
// refused as well.
func (l *Ledger) settleOne(tx Tx, r *Record, e *Ending, res Result, once bool) (c *Change, refused, err error) {
	ls := e.Lease
	switch {
	case r != nil && r.Work != nil && r.Work.State == StateLeased && r.Work.LockID == ls.LockID:
		if res.Outcome == OutcomeSnoozed && res.AtMost > 0 {
			if n, err := snoozedBefore(tx, r, res); err != nil {
				return nil, nil, err
			} else if n >= res.AtMost {
				res.Outcome, res.Final = OutcomeFailed, false
			} else {
				res.Delay = max(res.Delay, time.Second) // it must not come back at once
			}
		}
		settled := r.settle(res, tx.Now(), l.jitter())
		c = &settled
	case r != nil && r.lateReport(ls):
		if c = r.settleLate(ls, res, tx.Now(), l.jitter(), l.floor()); c == nil {
			e.Recorded, e.State, e.Round = r.Last.Outcome, StateDoubt, RoundDoubt
			return nil, nil, nil
		}
	default:
		a, err := landedBefore(tx, ls, res)
		if err != nil {
			return nil, nil, err
		}
		if a == nil || once {
			return nil, ErrLeaseLost, nil
		}
		if e.Recorded = a.Outcome; r != nil {
			e.State, e.Round = r.State(), r.RoundState(tx.Now())
		}
		return nil, nil, nil
	}
	e.Recorded, e.State, e.Round = c.Attempt.Outcome, c.state(), c.round()
	return c, nil, nil
}

// snoozedBefore counts how often in a row the item was snoozed with a code, or has failed. It passes over ends that are
// neither: a snooze without a code, a put-off by a person, a release, a holder that was lost. It reads four attempts
// for each that AtMost allows, and 16 more, so that such ends hardly shorten the count.
func snoozedBefore(tx Tx, r *Record, res Result) (n int, err error) {
	attempts, err := tx.Attempts(r.ID, r.Work.Attempt-int64(4*res.AtMost+16))
	if err != nil {
		return 0, err
	}
	for _, a := range slices.Backward(attempts) {
		snoozed := a.Outcome == OutcomeSnoozed && a.Code != codeRoundDone // that code completes the round
		switch {
		case a.Epoch != r.Work.Epoch:
			return n, nil
		case snoozed && a.Code != "" && a.Code != codePutOff, a.Outcome == OutcomeFailed:
			n++
		case snoozed, a.Outcome == OutcomeReleased, a.Outcome == OutcomeLost, a.Outcome == OutcomeCrashed:
		default:
			return n, nil
		}
	}
	return n, nil
}

// child returns an emitted item as it is added: with scope, source and trace of its parent, unless it names its own.
// The trace is that of the claim. A lease from LeasesOf has none: then it is that of the record.
func child(n NewItem, parent *Lease, recorded string) NewItem {
	from := fmt.Sprintf("%s/%d", parent.Kind, parent.ID)
	n.Scope = cmp.Or(n.Scope, from)
	n.Source = cmp.Or(n.Source, from)
	n.Trace = cmp.Or(n.Trace, parent.Trace, recorded)
	return n
}

// lateReport reports whether a lease may still settle an item in doubt: its claim is the newest one, the end of the
// claim brought the item into doubt, and no person has decided since. A lease from before a restoration may not.
func (r *Record) lateReport(ls *Lease) bool {
	return r.Work != nil && r.Work.State == StateDoubt && r.Last != nil && r.Last.Code != codeRestored &&
		r.Last.LockID == ls.LockID.String() && r.Last.Attempt == ls.Attempt && r.Work.Attempt == ls.Attempt
}

// settleLate returns the change for the report of a holder whose lease was counted as lost: one more attempt, without a
// claim. It is nil if the report is nothing new.
func (r *Record) settleLate(ls *Lease, res Result, now time.Time, jitter float64, floor int64) *Change {
	if res.Outcome == OutcomeUnknown || res.NoReport || res.Outcome == OutcomeReleased {
		return nil
	}
	w := *r.Work
	w.Attempt = next(w.Attempt, floor)
	w.Agent, w.LockID, w.LeasedAt = ls.Agent, ls.LockID, ls.StartedAt
	late := *r
	late.Work = &w
	c := late.settle(res, now, jitter)
	c.Attempt.LeasedAt = time.Time{}
	return &c
}

// landedBefore returns the stored attempt of a lease that was ended in the same way before: the answer was lost, or the
// caller repeats the call. It returns nil if there is none, or if its output differs.
func landedBefore(tx Tx, ls *Lease, res Result) (*Attempt, error) {
	attempts, err := tx.Attempts(ls.ID, ls.Attempt)
	if err != nil {
		return nil, err
	}
	for i, a := range attempts {
		counted := a.Outcome == OutcomeFailed && res.Outcome == OutcomeSnoozed && res.AtMost > 0 // see snoozedBefore
		if a.LockID == ls.LockID.String() && (counted || recordedAs(a, res.Outcome)) && bytes.Equal(a.Output, res.Output) {
			return &attempts[i], nil
		}
	}
	return nil, nil
}

// state returns the state in which a change that ends an attempt leaves the item.
func (c *Change) state() State {
	if c.Work != nil {
		return c.Work.State
	}
	return c.Attempt.leaves()
}

// round returns the state in which a change that ends an attempt leaves the current round of the item.
func (c *Change) round() RoundState {
	if s := c.state(); s != StateWaiting {
		return s.round()
	}
	return c.Attempt.ClosedAs()
}

// recordedAs reports whether a report with this outcome may have been stored as this attempt; see settle.
func recordedAs(a Attempt, out Outcome) bool {
	switch a.Outcome {
	case out:
		return true
	case OutcomeCancelled:
		return !out.Completed()
	case OutcomeUnknown:
		return out == OutcomeFailed
	case OutcomeSnoozed:
		return out.Completed() && a.Code == codeRoundDone
	}
	return false
}
