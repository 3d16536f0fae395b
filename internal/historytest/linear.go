package historytest

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ledgerd/ledgerd/internal/history"
	"github.com/ledgerd/ledgerd/ledger"
)

// phase of an item in the model. Waiting and ready are one: an item moves without a call when its
// time has come.
type phase uint8

const (
	absent phase = iota
	open
	leased
	doubtful
	dead
	finished
)

// item is the model of one item: what the ledger has to remember of it.
type item struct {
	phase   phase
	attempt int64
	lock    string
	until   int64
}

// step is one call as far as it concerns one item.
type step struct {
	id      int64
	op      string
	lock    string
	attempt int64
	until   int64
	now     int64
	outcome string
	code    string
	before  *item // the state before an update
	after   *item // the state after it; nil if it only looked
}

// apply reports whether the call may have had this answer in a state, and returns the next state.
func (o step) apply(x item) (bool, item) {
	held := x.phase == leased && x.lock == o.lock
	switch o.op {
	case history.OpClaim:
		return x.phase == open && o.attempt == x.attempt+1, item{leased, o.attempt, o.lock, o.until}
	case history.OpRenew:
		return held, item{leased, x.attempt, x.lock, o.until}
	case history.OpStart:
		return held, x
	case history.OpComplete:
		return held, item{phase: finished, attempt: x.attempt}
	}
	if b := o.before; b != nil {
		same := b.phase == x.phase && b.lock == x.lock && (b.phase == finished || b.attempt == x.attempt)
		if !same || ledger.Outcome(o.outcome).TakenBack() && o.code != ledger.CodeGone && x.phase == leased &&
			o.now < x.until {
			return false, x
		}
	} else if x.phase != absent {
		return false, x
	}
	if o.after == nil {
		return true, x
	}
	after := *o.after
	if after.phase == finished {
		after.attempt = max(x.attempt, o.attempt)
	}
	return true, after
}

// model is that of all items: each is a partition.
var model = porcupine.Model{
	Partition: func(all []porcupine.Operation) (parts [][]porcupine.Operation) {
		place := map[int64]int{}
		for _, o := range all {
			id := o.Input.(step).id
			i, known := place[id]
			if !known {
				i = len(parts)
				place[id], parts = i, append(parts, nil)
			}
			parts[i] = append(parts[i], o)
		}
		return parts
	},
	Init: func() any { return item{} },
	Step: func(x, in, _ any) (bool, any) {
		ok, next := in.(step).apply(x.(item))
		return ok, next
	},
	Equal:             func(a, b any) bool { return a.(item) == b.(item) },
	DescribeOperation: func(in, _ any) string { return fmt.Sprintf("%+v", in) },
}

// Linear checks with porcupine whether the calls have an order in which all answers are right. It gives up after the
// limit. That counts as a violation. left is the number of items that were left out because the result of a call on
// them is unknown.
func Linear(r *Run, limit time.Duration) (bad []Violation, left int) {
	steps, unclear := r.steps()
	all := steps[:0]
	for _, o := range steps {
		if !unclear[o.Input.(step).id] {
			all = append(all, o)
		}
	}
	end := time.Now().Add(limit)
	for _, part := range model.Partition(all) {
		id := part[0].Input.(step).id
		switch porcupine.CheckOperationsTimeout(model, part, max(time.Until(end), time.Millisecond)) {
		case porcupine.Illegal:
			bad = append(bad, Violation{"linear", id, "no order of its calls explains their answers: " + describe(part)})
		case porcupine.Unknown:
			bad = append(bad, Violation{"linear", id, fmt.Sprintf("%d calls could not be put into order in time", len(part))})
		}
	}
	return bad, len(unclear)
}

func describe(part []porcupine.Operation) (text string) {
	for _, o := range part {
		s := o.Input.(step)
		text += fmt.Sprintf("\n    [%d, %d] %s attempt %d lock %.13s %s", o.Call, o.Return, s.op, s.attempt, s.lock,
			s.outcome)
		if s.before != nil {
			text += fmt.Sprintf(" before %+v", *s.before)
		}
		if s.after != nil {
			text += fmt.Sprintf(" after %+v", *s.after)
		}
	}
	return text
}

// never is the return of a call that had no answer.
const never = int64(1) << 62

// steps are the calls item by item. unclear are the items whose calls are unknown.
func (r *Run) steps() (steps []porcupine.Operation, unclear map[int64]bool) {
	clients := map[string]int{}
	unclear = map[int64]bool{}
	rows := r.rows()
	answered := map[string]bool{} // ends of attempts that some call is known to have written
	add := func(c *call, back int64, s step) {
		id, known := clients[c.Process]
		if !known {
			id = len(clients)
			clients[c.Process] = id
		}
		steps = append(steps, porcupine.Operation{ClientId: id, Input: s, Call: c.At, Return: back})
	}
	calls := r.calls()
	for _, c := range calls {
		if !c.settled() {
			continue
		}
		switch c.Op {
		case history.OpUpdate:
			for _, s := range transitions(c.Items) {
				add(c, c.answer.At, s)
				answered[s.end()] = true
			}
		default:
			for _, it := range c.answer.Items {
				s := step{id: it.ID, op: c.Op, lock: it.Lock, attempt: it.Attempt, until: it.Until, now: it.Now}
				if c.Op == history.OpClaim && it.Lock != c.Lock { // held before: only its expiry was moved
					s.op = history.OpRenew
				}
				add(c, c.answer.At, s)
				answered[s.end()] = true
			}
		}
	}
	for _, c := range calls {
		if c.settled() || c.failed() {
			continue
		}
		for _, s := range r.landed(c, rows, unclear) {
			if end := s.end(); end == "" || !answered[end] {
				add(c, never, s)
				answered[end] = true
			}
		}
	}
	return steps, unclear
}

// end names what can happen only once: the insert of an item, or the end of an attempt.
func (s step) end() string {
	switch {
	case s.op == history.OpComplete:
		return fmt.Sprint(s.id, "/", s.lock)
	case s.op == history.OpClaim:
		return fmt.Sprint(s.id, "+", s.lock)
	case s.op == history.OpUpdate && s.outcome != "":
		return fmt.Sprint(s.id, "/", s.lock, s.lateness())
	case s.op == history.OpUpdate && s.before == nil:
		return fmt.Sprint(s.id)
	}
	return ""
}

// lateness distinguishes the end of an attempt from the late report about it: both have the same token.
func (s step) lateness() string {
	if s.before != nil && s.before.phase == doubtful {
		return "/late"
	}
	return ""
}

// transitions are the steps of a transaction: per item, from what was seen first to what was left.
func transitions(items []history.Item) (steps []step) {
	place := map[int64]int{}
	for _, it := range items {
		i, known := place[it.ID]
		if !known {
			i = len(steps)
			place[it.ID] = i
			steps = append(steps, step{id: it.ID, op: history.OpUpdate, before: modelled(it.Before)})
		}
		s := &steps[i]
		s.now = it.Now // the same for all of a transaction
		if it.After != nil {
			s.after = modelled(it.After)
		}
		if it.Outcome != "" {
			s.outcome, s.code, s.attempt, s.lock = it.Outcome, it.Code, it.Attempt, it.Lock
		}
	}
	return steps
}

// modelled is a state as the model has it.
func modelled(s *history.State) *item {
	if s == nil {
		return nil
	}
	p := map[ledger.State]phase{ledger.StateWaiting: open, ledger.StateReady: open, ledger.StateLeased: leased,
		ledger.StateDoubt: doubtful, ledger.StateDead: dead, "": finished}[ledger.State(s.State)]
	return &item{p, s.Attempt, s.Lock, s.Until}
}

// landed are the steps of a call without an answer that took effect, as the rows show. A call that
// they do not show makes the item unclear.
func (r *Run) landed(c *call, rows map[int64][]ledger.Attempt, unclear map[int64]bool) (steps []step) {
	switch c.Op {
	case history.OpClaim:
		for id, as := range rows {
			if a, ok := byLock(as, c.Lock); ok {
				at := a.LeasedAt.UnixMicro()
				steps = append(steps, step{id: id, op: c.Op, lock: c.Lock, attempt: a.Attempt, now: at, until: at +
					c.TTL.Microseconds()})
			}
		}
	case history.OpComplete:
		for _, it := range c.Items {
			if a, ok := byLock(rows[it.ID], it.Lock); ok && string(a.Outcome) == it.Outcome {
				steps = append(steps, step{id: it.ID, op: c.Op, lock: it.Lock})
			}
		}
	case history.OpRenew: // it may have moved the expiry: nothing shows that
		for _, it := range c.Items {
			if a, ok := byLock(rows[it.ID], it.Lock); ok && a.Outcome.TakenBack() {
				unclear[it.ID] = true
			}
		}
	case history.OpUpdate:
		for _, s := range transitions(c.Items) {
			_, exists := rows[s.id]
			switch {
			case s.after == nil: // it only looked
			case s.outcome != "":
				for _, a := range rows[s.id] {
					if a.Attempt == s.attempt && a.LockID == s.lock && string(a.Outcome) == s.outcome {
						steps = append(steps, s)
					}
				}
			case s.before == nil:
				if exists {
					steps = append(steps, s)
				}
			default:
				unclear[s.id] = true
			}
		}
	}
	return steps
}
