package ledger

import (
	"cmp"
	"time"

	"github.com/ledgerd/ledgerd/ledger/order"
)

// comparison returns the comparison for an order that no index has. Records without such a value come last. It returns
// an error if the walk cannot use the order.
func (w *Walk) comparison() (func(a, b *Record) int, error) {
	switch {
	case !w.Order.Known():
		return nil, &InvalidError{Field: "order", Reason: string(w.Order) + ": unknown"}
	case w.Top < 1 || w.After != (Mark{}):
		return nil, &InvalidError{Field: "order", Reason: string(w.Order) + ": has no index, so it takes how many to " +
			"keep, and no place to go on"}
	}
	lacks := func(r *Record) bool {
		switch w.Order {
		case order.Due, order.Priority:
			return r.Work == nil
		case order.Took:
			return r.Last == nil || r.Last.LeasedAt.IsZero()
		}
		return false
	}
	compare := map[order.By]func(a, b *Record) int{
		order.Added:    func(a, b *Record) int { return a.CreatedAt.Compare(b.CreatedAt) },
		order.Due:      func(a, b *Record) int { return a.Work.Due.Compare(b.Work.Due) },
		order.Took:     func(a, b *Record) int { return cmp.Compare(a.Last.took(), b.Last.took()) },
		order.Key:      func(a, b *Record) int { return cmp.Compare(a.Key, b.Key) },
		order.Priority: func(a, b *Record) int { return cmp.Compare(a.Work.Priority, b.Work.Priority) },
	}[w.Order]
	return func(a, b *Record) int {
		switch lacksA, lacksB := lacks(a), lacks(b); {
		case lacksA && lacksB:
			return cmp.Compare(a.ID, b.ID)
		case lacksA:
			return 1
		case lacksB:
			return -1
		}
		by := compare(a, b)
		if w.Desc {
			by = -by
		}
		return cmp.Or(by, cmp.Compare(a.ID, b.ID))
	}, nil
}

func (a *Attempt) took() time.Duration { return a.FinishedAt.Sub(a.LeasedAt) }
