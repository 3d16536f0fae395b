// Package follow finds attempts as they end, and reports each once: for programs, for watch, and for the events of the
// API. A caller's transaction that commits more than five seconds after its FinishTx may be missed.
//
// Transactions do not commit in the order of their times. So each look begins a little before the last one ended, and
// the follower remembers which attempts of that stretch it has reported.
//
// It sees the attempts of all processes. Those of one worker alone are reported by Observe of worker.Config, at once.
package follow

import (
	"context"
	"errors"
	"iter"
	"maps"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

const (
	pageOf = 250 // attempts that are read at a time
	// overlap is how long a transaction may take from reading the clock to its commit and still be seen.
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
	reached time.Time // the newest time seen
	seen    map[ledger.Mark]bool
}

// New makes a follower of what matches a query and ends after a moment of the database's clock.
func New(l Ledger, q ledger.EndedQuery, from time.Time) *Follower {
	q.Limit, q.Desc = pageOf, false
	return &Follower{ledger: l, query: q, reached: from, seen: map[ledger.Mark]bool{}}
}

// Begin tells the n items that ended last.
func (f *Follower) Begin(ctx context.Context, n int, tell func(ledger.Ended) error) error {
	from := f.reached
	// Attempts that ended in the overlap before that, and are not told here, are not news.
	quiet := func() error { return f.poll(ctx, from, func(ledger.Ended) error { return nil }) }
	if n == 0 {
		return quiet()
	}
	last, err := f.ledger.Recent(ctx, f.query.Filter, n)
	if err != nil {
		return err
	}
	for _, e := range last {
		if f.query.Failed && !e.Outcome.Fails() {
			continue
		}
		f.seen[e.Mark()] = true
		if err := tell(e); err != nil {
			return err
		}
	}
	return quiet()
}

// Poll tells what has ended since the last time, however much.
func (f *Follower) Poll(ctx context.Context, tell func(ledger.Ended) error) error {
	return f.poll(ctx, time.Time{}, tell)
}

// poll is Poll of what ended up to a moment; zero: of all.
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
			return nil
		}
		q.After = page[len(page)-1].Mark()
	}
}

// goBack begins anew at a moment. What ended after it, by the clock of before, is not told again. What ended in the
// overlap before it may be.
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
			f.reached = to
			return nil
		}
		q.After = page[len(page)-1].Mark()
	}
}

// All yields what matches a query and ends from now on, until ctx ends or after an error of the ledger. It looks every
// so often; a second is a good measure.
func All(ctx context.Context, l Ledger, q ledger.EndedQuery, every time.Duration) iter.Seq2[ledger.Ended, error] {
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
		look := time.Tick(every)
		for {
			select {
			case <-ctx.Done():
				return
			case <-look:
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
