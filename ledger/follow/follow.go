// Package follow finds the attempts of all processes as they end, and reports each once: for programs, for watch, and
// for the events of the API. It may miss a transaction that commits more than five seconds after its FinishTx. For one
// worker, Observe of worker.Config reports ends at once.
//
// Transactions do not commit in the order of their times. So each poll reads from five seconds before the newest
// attempt on, and the follower remembers which of these attempts it has reported. If none matches for long, it
// goes on from the newest attempt of all, so that a poll does not read more and more.
package follow

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

const (
	pageOf = 250 // attempts that one query reads
	// overlap is the longest time from reading the clock to the commit of a transaction that is not missed.
	overlap = 5 * time.Second
)

// Ledger is what a follower needs of a ledger. A *ledger.Ledger is one; its methods have the documentation.
type Ledger interface {
	Now(ctx context.Context) (time.Time, error)
	Ended(ctx context.Context, q ledger.EndedQuery) ([]ledger.Ended, error)
	Recent(ctx context.Context, f ledger.Filter, n int) ([]ledger.Ended, error)
}

// Follower follows the end of the list of attempts. It is for one goroutine.
type Follower struct {
	ledger  Ledger
	query   ledger.EndedQuery
	reached time.Time            // when the newest attempt that was read or passed ended
	seen    map[ledger.Mark]bool // attempts that were read and ended at most overlap before reached
	looked  time.Time            // when pass last looked for the newest attempt
}

// New makes a follower of the attempts that match a query and end after a time of the database's clock.
func New(l Ledger, q ledger.EndedQuery, from time.Time) *Follower {
	q.Limit, q.Desc = pageOf, false
	return &Follower{ledger: l, query: q, reached: from, seen: map[ledger.Mark]bool{}}
}

// Begin calls tell with the newest attempt of each of the n items that ended last. Poll reports no older attempts.
func (f *Follower) Begin(ctx context.Context, n int, tell func(ledger.Ended) error) error {
	from := f.reached
	skipOlder := func() error { return f.poll(ctx, from, func(ledger.Ended) error { return nil }) }
	if n == 0 {
		return skipOlder()
	}
	chosen := f.query.Filter
	if f.query.Failed {
		chosen = chosen.And(ledger.Filter{Outcomes: slices.DeleteFunc(slices.Clone(ledger.Outcomes),
			func(o ledger.Outcome) bool { return !o.FailedOrUncertain() })})
	}
	last, err := f.ledger.Recent(ctx, chosen, n)
	if err != nil {
		return err
	}
	for _, e := range last {
		f.seen[e.Mark()] = true
		if err := tell(e); err != nil {
			return err
		}
	}
	return skipOlder()
}

// Poll calls tell for all attempts that have ended since the last Poll.
func (f *Follower) Poll(ctx context.Context, tell func(ledger.Ended) error) error {
	return f.poll(ctx, time.Time{}, tell)
}

// poll is Poll for the attempts that ended up to a time; zero: for all.
func (f *Follower) poll(ctx context.Context, upTo time.Time, tell func(ledger.Ended) error) error {
	now, err := f.ledger.Now(ctx)
	if err != nil {
		return err
	}
	if now.Before(f.reached) { // the clock of the database was set back, as after a failover
		if err := f.goBack(ctx, now); err != nil {
			return err
		}
	}
	passed := f.reached
	if upTo.IsZero() {
		if passed, err = f.pass(ctx, now); err != nil {
			return err
		}
	}
	q := f.query
	q.After = ledger.Mark{At: f.reached.Add(-overlap)}
	for {
		page, err := f.ledger.Ended(ctx, q)
		if err != nil {
			return err
		}
		for _, e := range page {
			m := e.Mark()
			if f.seen[m] || !upTo.IsZero() && m.At.After(upTo) {
				continue
			}
			f.seen[m] = true
			if m.At.After(f.reached) {
				f.reached = m.At
			}
			if err := tell(e); err != nil {
				return err
			}
		}
		maps.DeleteFunc(f.seen, func(m ledger.Mark, _ bool) bool { return m.At.Before(f.reached.Add(-overlap)) })
		if len(page) < q.Limit {
			if passed.After(f.reached) {
				f.reached = passed
			}
			return nil
		}
		q.After = page[len(page)-1].Mark()
	}
}

// pass returns the time from which the next poll may go on if this one finds nothing later. That is when the newest
// attempt ended, whether it matches or not, and not the time of the clock: while commits wait, as for a standby, it
// stands still. pass looks only if nothing has matched for long, and not at every poll.
func (f *Follower) pass(ctx context.Context, now time.Time) (time.Time, error) {
	if quiet := now.Add(-2 * overlap); quiet.Before(f.reached) || quiet.Before(f.looked) {
		return f.reached, nil
	}
	f.looked = now
	newest, err := f.ledger.Ended(ctx, ledger.EndedQuery{Filter: ledger.Filter{Kinds: f.query.Filter.Kinds},
		Failed: f.query.Failed, Desc: true, Limit: 1})
	if err != nil || len(newest) == 0 {
		return f.reached, err
	}
	if at := newest[0].FinishedAt; at.Before(now) {
		return at, nil
	}
	return now, nil
}

// goBack makes the follower continue from an earlier time. Attempts that ended after it, before the clock was set back,
// are not reported again. Attempts that ended in the overlap before it may be.
func (f *Follower) goBack(ctx context.Context, to time.Time) error {
	q := f.query
	q.After = ledger.Mark{At: to}
	for {
		page, err := f.ledger.Ended(ctx, q)
		if err != nil {
			return err
		}
		for _, e := range page {
			f.seen[e.Mark()] = true
		}
		if len(page) < q.Limit {
			f.reached, f.looked = to, to
			return nil
		}
		q.After = page[len(page)-1].Mark()
	}
}

// All yields the attempts that match a query and end from now on, until ctx ends or after an error of the ledger. It
// polls the ledger at an interval, such as one second.
func All(ctx context.Context, l Ledger, q ledger.EndedQuery, interval time.Duration) iter.Seq2[ledger.Ended, error] {
	return func(yield func(ledger.Ended, error) bool) {
		now, err := l.Now(ctx)
		if err != nil {
			yield(ledger.Ended{}, err)
			return
		}
		f := New(l, q, now)
		if err := f.Begin(ctx, 0, nil); err != nil {
			yield(ledger.Ended{}, err)
			return
		}
		poll := time.Tick(interval)
		for {
			select {
			case <-ctx.Done():
				return
			case <-poll:
			}
			err := f.Poll(ctx, func(e ledger.Ended) error {
				if !yield(e, nil) {
					return errEnough
				}
				return nil
			})
			if err == nil {
				continue
			}
			if !errors.Is(err, errEnough) && ctx.Err() == nil {
				yield(ledger.Ended{}, err)
			}
			return
		}
	}
}

// errEnough means that the loop over All has ended.
var errEnough = errors.New("enough")
