package ledger

import (
	"cmp"
	"slices"
	"time"
)

// Order is what a walk goes by.
type Order string

// The orders. Those by id and by end go by an index, however many items there are. For the others all that
// matches is looked at, and the first ones are kept.
const (
	ByID       Order = "id"
	ByEnd      Order = "ended" // of the newest attempt; items of which none has ended are left out
	ByAdded    Order = "added"
	ByDue      Order = "due" // what is finished comes last
	ByTook     Order = "took"
	ByKeyOrder Order = "key"
	ByPriority Order = "priority"
)

// Orders are all of them.
var Orders = []Order{ByID, ByEnd, ByAdded, ByDue, ByTook, ByKeyOrder, ByPriority}

// Known says whether it is one of Orders.
func (o Order) Known() bool { return slices.Contains(Orders, o) }

// Indexed says whether a walk in this order can be gone on with at a place.
func (o Order) Indexed() bool { return o == ByID || o == ByEnd || o == "" }

// check returns how to compare records in an order that no index has. What has no such value comes last.
func (w *Walk) check() (func(a, b *Record) int, error) {
	switch {
	case !w.Order.Known():
		return nil, &InvalidError{Field: "order", Reason: string(w.Order) + ": unknown"}
	case w.Top < 1 || w.After != (Mark{}):
		return nil, &InvalidError{Field: "order", Reason: string(w.Order) + ": has no index, so it takes how many to keep, and no place to go on"}
	}
	none := func(r *Record) bool {
		switch w.Order {
		case ByDue, ByPriority:
			return r.Work == nil
		case ByTook:
			return r.Last == nil || r.Last.LeasedAt.IsZero()
		}
		return false
	}
	compare := map[Order]func(a, b *Record) int{
		ByAdded:    func(a, b *Record) int { return a.CreatedAt.Compare(b.CreatedAt) },
		ByDue:      func(a, b *Record) int { return a.Work.Due.Compare(b.Work.Due) },
		ByTook:     func(a, b *Record) int { return cmp.Compare(a.Last.took(), b.Last.took()) },
		ByKeyOrder: func(a, b *Record) int { return cmp.Compare(a.Key, b.Key) },
		ByPriority: func(a, b *Record) int { return cmp.Compare(a.Work.Priority, b.Work.Priority) },
	}[w.Order]
	return func(a, b *Record) int {
		if none(a) || none(b) {
			if none(a) != none(b) {
				return map[bool]int{true: 1, false: -1}[none(a)]
			}
			return cmp.Compare(a.ID, b.ID)
		}
		by := compare(a, b)
		if w.Desc {
			by = -by
		}
		return cmp.Or(by, cmp.Compare(a.ID, b.ID))
	}, nil
}

func (a *Attempt) took() time.Duration { return a.FinishedAt.Sub(a.LeasedAt) }
