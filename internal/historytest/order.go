package historytest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/internal/history"
	"github.com/ledgerd/ledgerd/ledger"
)

// span is a time, in microseconds of the database's clock, in which an item was open: ready, leased, or
// waiting and due. A wait that ends late is left out of it.
type span struct {
	id       int64
	from, to int64
}

// openSpans are the times in which items of the kinds were not finished, nor dead, nor in doubt,
// nor due later than the patience, nor with a person.
func (r *Run) openSpans(kinds []string, patience int64) (spans []span) {
	live := r.live()
	waits := map[int64][]span{} // item → until when it had to wait
	for _, c := range r.calls() {
		if c.Op != history.OpUpdate || c.failed() {
			continue
		}
		for _, it := range c.Items {
			if a := it.After; a != nil && a.State == string(ledger.StateWaiting) && a.Due-patience > it.Now {
				waits[it.ID] = append(waits[it.ID], span{it.ID, it.Now, a.Due - patience})
			}
		}
	}
	for i := range r.Items {
		it := &r.Items[i]
		if !slices.Contains(kinds, it.Kind) {
			continue
		}
		from, to := it.CreatedAt.UnixMicro(), never
		if it.Work == nil || it.Work.State == ledger.StateDead || it.Work.State == ledger.StateDoubt {
			to = closed(it.Attempts).UnixMicro()
		}
		excused := waits[it.ID]
		for _, a := range it.Attempts {
			if a.LockID != "" && !a.LeasedAt.IsZero() && person(a.Agent) { // people are not waited for
				excused = append(excused, span{it.ID, a.LeasedAt.UnixMicro(), a.FinishedAt.UnixMicro()})
			}
		}
		if w := live[it.ID]; w != nil {
			excused = append(excused, span{it.ID, w.LeasedAt.UnixMicro(), never})
		}
		slices.SortFunc(excused, func(a, b span) int { return cmp.Compare(a.from, b.from) })
		for _, w := range excused {
			if w.from >= from && w.from < to {
				spans = append(spans, span{it.ID, from, w.from})
				from = min(w.to, to)
			}
		}
		spans = append(spans, span{it.ID, from, to})
	}
	return spans
}

// closed is when an item left what is open: with its last attempt, or with the one before it if that is a
// person's verdict about it.
func closed(rows []ledger.Attempt) time.Time {
	last := len(rows) - 1
	if last > 0 && rows[last].LeasedAt.IsZero() {
		last--
	}
	return rows[last].FinishedAt
}

// Drains checks promise S10: a drain that returned had a moment at which nothing of its kinds was open.
func Drains(r *Run) (bad []Violation) {
	if !r.Steady {
		return nil
	}
	for _, d := range r.Drains {
		called, returned := d.Called/1000+r.Offset-slack, d.Returned/1000+r.Offset+slack
		type turn struct {
			at   int64
			more int
		}
		var turns []turn
		openNow := 0
		var last int64 // an item that is open at the end
		for _, s := range r.openSpans(d.Kinds, d.Patience) {
			if s.to <= called || s.from >= returned {
				continue
			}
			if s.from <= called {
				openNow++
			} else {
				turns = append(turns, turn{s.from, 1})
			}
			if s.to < returned {
				turns = append(turns, turn{s.to, -1})
			} else {
				last = s.id
			}
		}
		slices.SortFunc(turns, func(a, b turn) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.more, b.more)) })
		least := openNow
		for _, t := range turns {
			openNow += t.more
			least = min(least, openNow)
		}
		if least > 0 {
			bad = append(bad,
				Violation{"S10", last, fmt.Sprintf("a drain of %v returned though %d items were open at any moment of it", d.Kinds,
					least)})
		}
	}
	return bad
}

// Overtaking checks that no item is overtaken for long. An item is overtaken when an item of the same kind and
// priority, due later, is claimed before it. The time counts from the moment at which the item became ready to the
// last such claim; more than the bound is a violation. most is the longest such time.
func Overtaking(r *Run, bound time.Duration) (bad []Violation, most time.Duration) {
	if !r.Steady {
		return nil, 0
	}
	for _, queue := range r.queues() {
		slices.SortFunc(queue, func(a, b place) int { return cmp.Compare(a.due, b.due) })
		for i, e := range queue {
			var worst place
			for _, later := range queue[i+1:] {
				if later.due > e.due && later.claimed < e.claimed && later.claimed > worst.claimed {
					worst = later
				}
			}
			d := time.Duration(worst.claimed-e.ready) * time.Microsecond
			if most = max(most, d); d > bound {
				bad = append(bad, Violation{"overtaking", e.id,
					fmt.Sprintf("item %d, due later, was claimed %v after this one had become ready and was not claimed", worst.id,
						d)})
			}
		}
	}
	return bad, most
}

// place is that of an item in its queue.
type place struct{ id, due, ready, claimed int64 }

// queues are the items that were added ready, by kind and priority, up to their first claim. From the
// answer of the call that added it at the latest all processes could see an item.
func (r *Run) queues() map[string][]place {
	items := make(map[int64]*ledger.Audited, len(r.Items))
	for i := range r.Items {
		items[r.Items[i].ID] = &r.Items[i]
	}
	queues := map[string][]place{}
	for _, c := range r.calls() {
		if c.Op != history.OpUpdate || !c.settled() {
			continue
		}
		for _, it := range c.Items {
			if it.Identity == "" || it.After.State != string(ledger.StateReady) || items[it.ID] == nil {
				continue
			}
			if claims := claimed(items[it.ID].Attempts); len(claims) > 0 && claims[0].Attempt == 1 {
				queue := fmt.Sprint(items[it.ID].Kind, it.After.Priority)
				queues[queue] = append(queues[queue], place{it.ID, it.After.Due, c.answer.At/1000 + r.Offset,
					claims[0].LeasedAt.UnixMicro()})
			}
		}
	}
	return queues
}
