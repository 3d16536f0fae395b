package ledger

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger/order"
)

// Walk goes through the items that match a filter, in an order, and records how far it has read. Each of its queries
// reads a bounded part of the ledger, so it ends in time with any filter.
type Walk struct {
	Filter Filter
	Order  order.By
	Desc   bool // in descending order
	// After is where to continue: after the item with its id, or in the order Ended after its attempt. The zero mark is
	// the beginning. An order without an index cannot be continued.
	After  Mark
	Output bool          // with the output of items
	Time   time.Duration // the longest time to read; 0: no limit
	Top    int           // for an order without an index: how many items are kept, the first ones of all

	// Reached is how far the walk has read, for After.
	Reached Mark
	// Cut means that its time was over before it had read everything.
	Cut bool
}

// walker is a running walk.
type walker struct {
	*Walk
	ctx   context.Context
	l     *Ledger
	began time.Time
	now   time.Time // the database's clock, after the latest read
	yield func(*Record, time.Time) bool
	ended bool // the receiver wants no more
	read  bool // there was a query
}

// Walk yields the items. The first error may be a wrong order or a wrong place.
func (l *Ledger) Walk(ctx context.Context, w *Walk) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		err := l.walk(ctx, w, func(r *Record, now time.Time) bool { return yield(r.Item(now), nil) })
		if err != nil {
			yield(Item{}, err)
		}
	}
}

// walk yields records, each with a time of the database's clock at which, or before which, it was read.
func (l *Ledger) walk(ctx context.Context, w *Walk, yield func(*Record, time.Time) bool) error {
	w.Order = cmp.Or(w.Order, order.ID)
	w.Output = w.Output || w.Filter.asksOutput()
	w.Reached = w.After
	g := &walker{Walk: w, ctx: ctx, l: l, began: time.Now(), yield: yield}
	switch w.Order {
	case order.ID:
		return g.byID()
	case order.Ended:
		if done, err := g.fewByEnd(); done || err != nil {
			return err
		}
		return g.byEnd()
	}
	compare, err := w.comparison()
	if err != nil {
		return err
	}
	var kept []*Record
	g.yield = func(r *Record, _ time.Time) bool {
		if kept = append(kept, r); len(kept) >= 2*w.Top+page {
			kept = first(kept, w.Top, compare)
		}
		return true
	}
	if err := g.byID(); err != nil {
		return err
	}
	for _, r := range first(kept, w.Top, compare) {
		if !yield(r, g.now) {
			break
		}
	}
	return nil
}

// first returns the first n of a list in an order.
func first(list []*Record, n int, compare func(a, b *Record) int) []*Record {
	slices.SortFunc(list, compare)
	return list[:min(n, len(list))]
}

// over reports whether the walk has to end: its time is over, or the receiver wants no more. It reads at least once.
// Otherwise, while the database is slow, a caller that continues from Reached would never get further.
func (g *walker) over() bool {
	g.Cut = g.Cut || g.read && g.Time > 0 && time.Since(g.began) > g.Time
	return g.Cut || g.ended
}

// give yields a record if it also matches the conditions that the store does not check.
func (g *walker) give(r *Record) {
	if !g.ended && g.Filter.matchFields(r.Payload, r.Output) {
		g.ended = !g.yield(r, g.now)
	}
}

// byID walks in the order of ids, one range of ids after the other.
func (g *walker) byID() error {
	spans, err := g.l.spans(g.ctx, g.Filter.stored(), g.Time)
	if err != nil {
		return err
	}
	if g.Desc {
		slices.Reverse(spans)
	}
	for _, f := range spans {
		if g.over() {
			return nil
		}
		if err := g.span(f); err != nil {
			return err
		}
		if g.Reached == g.After { // a walk that ends here would begin at the same place again
			g.read = false
		}
	}
	return nil
}

// span walks through the items that one of the filters of spans matches, from After on.
func (g *walker) span(f Filter) error {
	from := Filter{Above: g.After.ItemID}
	if g.Desc && g.After.ItemID > 0 {
		from = Filter{UpTo: g.After.ItemID - 1}
		if from.UpTo == 0 { // 0 would be no bound
			return nil
		}
	}
	s, err := g.l.stretch(g.ctx, f.And(from), g.Desc)
	for err == nil && !s.done {
		if g.over() {
			return nil
		}
		err = g.window(s)
	}
	return err
}

// window reads the items of the next ids of a range, at most a page of them.
func (g *walker) window(s *stretch) error {
	if err := g.l.fit(g.ctx, nil); err != nil {
		return err
	}
	began := time.Now()
	g.read = true
	recs, err := g.l.store.Records(g.ctx, RecordQuery{Filter: s.window(), Desc: g.Desc, Output: g.Output, Limit: page})
	if err == nil && len(recs) > 0 {
		g.now, err = g.l.store.Now(g.ctx)
	}
	if err != nil {
		return err
	}
	for i := range recs {
		if !g.ended {
			g.Reached = Mark{ItemID: recs[i].ID}
			g.give(&recs[i])
		}
	}
	if g.ended {
		return nil
	}
	if len(recs) == page {
		s.reached(recs[page-1].ID)
		return nil
	}
	err = g.l.pass(g.ctx, s, time.Since(began), g.Time-time.Since(g.began))
	if err == nil && !s.done {
		g.Reached = Mark{ItemID: s.place()}
	}
	return err
}

// maxFew is the most items that a walk in the order of ends reads by id and sorts, and fewBytes the most bytes of
// their payloads and outputs.
const (
	maxFew   = 1000
	fewBytes = 16 << 20
)

// fewByEnd walks in the order of ends by reading all items of the filter and sorting them. It does so only if an index
// finds these items and they are few: byEnd would read the attempts of all other items, too. Else done is false.
func (g *walker) fewByEnd() (done bool, err error) {
	if !g.Filter.atIndex() {
		return false, nil
	}
	var few []*Record
	size := 0
	byID := &Walk{Filter: g.Filter, Output: g.Output, Time: g.Time / 2}
	err = g.l.walk(g.ctx, byID, func(r *Record, now time.Time) bool {
		if g.now = now; r.Last != nil {
			few = append(few, r)
		}
		size += len(r.Payload) + len(r.Output)
		return len(few) <= maxFew && size <= fewBytes
	})
	if err != nil || byID.Cut || len(few) > maxFew || size > fewBytes {
		return false, err
	}
	slices.SortFunc(few, func(a, b *Record) int { return a.Last.mark().Compare(b.Last.mark()) })
	if g.Desc {
		slices.Reverse(few)
	}
	for _, r := range few {
		at := r.Last.mark()
		if c := at.Compare(g.After); g.After != (Mark{}) && (c == 0 || (c > 0) == g.Desc) { // not after the mark
			continue
		}
		if g.Reached = at; !g.yield(r, g.now) {
			break
		}
	}
	return true, nil
}

// Attempts that a walk in the order of ends reads at a time: few at first, since some callers want few.
const firstEnds, maxEnds = 128, 512

// byEnd walks through the attempts in the order in which they ended. It yields each item at its newest attempt.
func (g *walker) byEnd() error {
	since := g.Filter.latest(func(f Filter) time.Time { return f.Since })
	q := EndedQuery{Filter: Filter{Kinds: g.Filter.kinds()}, Failed: g.Filter.fails(), Desc: g.Desc, After: g.After,
		Limit: firstEnds}
	if !g.Desc && q.After == (Mark{}) {
		q.After.At = since
	}
	for !g.over() {
		if err := g.l.fit(g.ctx, nil); err != nil {
			return err
		}
		g.read = true
		ended, err := g.l.store.Ended(g.ctx, q)
		if err != nil || len(ended) == 0 {
			return err
		}
		byID, err := g.l.recordsOf(g.ctx, ended, g.Filter.stored(), g.Output)
		if err == nil {
			g.now, err = g.l.store.Now(g.ctx)
		}
		if err != nil {
			return err
		}
		for _, e := range ended {
			if g.Desc && e.FinishedAt.Before(since) {
				return nil // the items of all further attempts were added and ended before since
			}
			if r := byID[e.ItemID]; r.isNewest(e) && !g.ended {
				g.Reached = e.Mark()
				g.give(r)
			}
		}
		q.After = ended[len(ended)-1].Mark()
		if !g.ended {
			g.Reached = q.After
		}
		if len(ended) < q.Limit {
			return nil
		}
		q.Limit = min(2*q.Limit, maxEnds)
	}
	return nil
}
