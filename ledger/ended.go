package ledger

import (
	"cmp"
	"context"
	"time"
)

// Mark is a place in the order in which attempts ended.
type Mark struct {
	At     time.Time
	ItemID int64
	Number int64 // of the attempt
}

// Compare orders marks as the attempts ended.
func (m Mark) Compare(o Mark) int {
	return cmp.Or(m.At.Compare(o.At), cmp.Compare(m.ItemID, o.ItemID), cmp.Compare(m.Number, o.Number))
}

// EndedQuery asks for attempts by when they ended.
type EndedQuery struct {
	// Filter is about the items; what it says of the newest attempt is asked of each attempt instead.
	Filter Filter
	Failed bool // only those that failed, crashed, were lost, or may or may not have taken effect
	After  Mark // only those that ended later
	Limit  int  // most of them, the earliest ones; 1 … 10,000
}

// Fails says whether an outcome is one that EndedQuery.Failed asks for.
func (o Outcome) Fails() bool {
	return o == OutcomeFailed || o == OutcomeCrashed || o == OutcomeLost || o == OutcomeUnknown
}

// Ended is an attempt that ended, without log and output, and what it was about.
type Ended struct {
	Attempt
	Scope, Key  string
	Every, Zone string
}

// Mark is where it stands among all that ended.
func (e *Ended) Mark() Mark { return Mark{e.FinishedAt, e.ItemID, e.Attempt.Attempt} }

// Ended returns attempts in the order in which they ended. A transaction may commit after a later
// one, so who follows the end of the list looks back a little.
func (l *Ledger) Ended(ctx context.Context, q EndedQuery) ([]Ended, error) {
	if err := checkLimit(q.Limit); err != nil {
		return nil, err
	}
	if err := l.fit(ctx, nil); err != nil {
		return nil, err
	}
	q.After.At = q.After.At.UTC().Truncate(time.Microsecond)
	list, err := l.store.Ended(ctx, q)
	nameRounds(list)
	return list, err
}

// Recent returns the newest attempts of the n items that ended last, in the order in which they ended.
func (l *Ledger) Recent(ctx context.Context, f Filter, n int) ([]Ended, error) {
	if err := checkLimit(n); err != nil {
		return nil, err
	}
	recs, err := l.store.Recent(ctx, f, n)
	if err != nil {
		return nil, err
	}
	list := make([]Ended, len(recs))
	for i := range recs {
		r := &recs[i]
		list[len(recs)-1-i] = Ended{Attempt: *r.Last, Scope: r.Scope, Key: r.Key, Every: r.Every, Zone: r.Zone}
	}
	nameRounds(list)
	return list, nil
}

func nameRounds(list []Ended) {
	for i := range list {
		a := &list[i]
		a.Round = roundName(a.Epoch)
		if a.Period.IsZero() {
			continue
		}
		if e, err := ParseEvery(a.Every, a.Zone); err == nil {
			a.Round = e.Name(a.Period)
		}
	}
}
