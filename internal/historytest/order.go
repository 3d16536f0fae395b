package historytest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/internal/history"
	"github.com/ledgerd/ledgerd/ledger"
)

// span is a stretch of time of an item, in microseconds of the database's clock.
type span struct {
	id       int64
	from, to int64
}

// openSpans returns the spans in which a drain with this patience had to wait for items of these kinds. It does not
// wait for items that are finished, dead, in doubt, due later than its patience, or leased to a person.
func (r *Run) openSpans(kinds []string, patience int64) (spans []span) {
	live := r.live()
	waits := map[int64][]span{} // item → spans in which it was due too late
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
		excused := waits[it.ID] // spans in which a drain does not wait for it
		for _, a := range it.Attempts {
			if a.LockID != "" && !a.LeasedAt.IsZero() && person(a.Agent) {
				excused = append(excused, span{it.ID, a.LeasedAt.UnixMicro(), a.FinishedAt.UnixMicro()})
			}
		}
		if w := live[it.ID]; w != nil && person(w.Agent) {
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

// closed returns when an item became finished, dead or doubtful: with its last attempt, or with the attempt before if
// the last row is the verdict of a person.
func closed(rows []ledger.Attempt) time.Time {
	last := len(rows) - 1
	if last > 0 && rows[last].LeasedAt.IsZero() {
		last--
	}
	return rows[last].FinishedAt
}

// Drains checks promise S10: during a drain that returned there was a moment at which no item of its kinds was open.
func Drains(r *Run) (bad []Violation) {
	if !r.Steady {
		return nil
	}
	for _, d := range r.Drains {
		called, returned := d.Called/1000+r.Offset-slack, d.Returned/1000+r.Offset+slack
		type change struct {
			at   int64
			more int // of open items: 1 or -1
		}
		var changes []change
		openNow := 0
		var last int64 // an item that is open at the end
		for _, s := range r.openSpans(d.Kinds, d.Patience) {
			if s.to <= called || s.from >= returned {
				continue
			}
			if s.from <= called {
				openNow++
			} else {
				changes = append(changes, change{s.from, 1})
			}
			if s.to < returned {
				changes = append(changes, change{s.to, -1})
			} else {
				last = s.id
			}
		}
		slices.SortFunc(changes, func(a, b change) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.more, b.more))
		})
		least := openNow
		for _, c := range changes {
			openNow += c.more
			least = min(least, openNow)
		}
		if least > 0 {
			bad = append(bad, Violation{"S10", last,
				fmt.Sprintf("a drain of %v returned though %d items were open at any moment of it", d.Kinds, least)})
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

// place is an item in its queue: when it was due, when all processes could see it at the latest, and when it was first
// claimed, in microseconds of the database's clock.
type place struct{ id, due, ready, claimed int64 }

// queues returns the items that were added ready, by kind and priority. All processes can see an item after the call
// that added it has its answer.
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
