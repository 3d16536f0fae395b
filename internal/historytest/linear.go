package historytest

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ledgerd/ledgerd/internal/history"
	"github.com/ledgerd/ledgerd/ledger"
)

// phase is the state of an item in the model. Waiting and ready are both open, since a waiting item becomes ready
// without a call.
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
	lock    string // lock_id
	until   int64  // expiry of the lease, microseconds of the database's clock
}

// step is what one call did to one item.
type step struct {
	id      int64
	op      string
	lock    string
	attempt int64
	until   int64
	now     int64
	outcome string
	code    string
	before  *item // in OpUpdate: as it was read, nil if the call inserted the item
	after   *item // in OpUpdate: as it was left, nil if the call only read the item
}

// apply reports whether a call can have had this answer for an item in this state, and returns the next state.
func (s step) apply(x item) (bool, item) {
	held := x.phase == leased && x.lock == s.lock
	switch s.op {
	case history.OpClaim:
		return x.phase == open && s.attempt == x.attempt+1, item{leased, s.attempt, s.lock, s.until}
	case history.OpRenew:
		return held, item{leased, x.attempt, x.lock, s.until}
	case history.OpStart:
		return held, x
	case history.OpComplete:
		return held, item{phase: finished, attempt: x.attempt}
	}
	if !s.canUpdate(x) {
		return false, x
	}
	if s.after == nil {
		return true, x
	}
	after := *s.after
	if after.phase == finished {
		after.attempt = max(x.attempt, s.attempt)
	}
	return true, after
}

// canUpdate reports whether an update can have read this state. It can take back a lease only after its expiry, or from
// a process that is gone.
func (s step) canUpdate(x item) bool {
	b := s.before
	if b == nil {
		return x.phase == absent
	}
	if b.phase != x.phase || b.lock != x.lock || b.phase != finished && b.attempt != x.attempt {
		return false
	}
	takesBack := ledger.Outcome(s.outcome).TakenBack() && s.code != ledger.CodeGone
	return !takesBack || x.phase != leased || s.now >= x.until
}

// model is the model of a ledger for porcupine. Each item is a partition.
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

// Linear checks with porcupine whether the calls have an order in which all answers are right. After the limit it gives
// up, and reports that as a violation. left counts the items that were left out because the result of a call on them
// is unknown.
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

// describe lists the steps of an item, one a line.
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

// never is a time after all others: an event with this time did not happen.
const never = int64(1) << 62

// steps returns what each call did to each of its items. unclear has the items of which the rows do not show whether a
// call without an answer took effect.
func (r *Run) steps() (steps []porcupine.Operation, unclear map[int64]bool) {
	clients := map[string]int{}
	unclear = map[int64]bool{}
	rows := r.rows()
	written := map[string]bool{} // names of what some call is known to have written; see step.once
	add := func(c *call, returned int64, s step) {
		id, known := clients[c.Process]
		if !known {
			id = len(clients)
			clients[c.Process] = id
		}
		steps = append(steps, porcupine.Operation{ClientId: id, Input: s, Call: c.At, Return: returned})
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
				written[s.once()] = true
			}
		default:
			for _, it := range c.answer.Items {
				s := step{id: it.ID, op: c.Op, lock: it.Lock, attempt: it.Attempt, until: it.Until, now: it.Now}
				if c.Op == history.OpClaim && it.Lock != c.Lock { // its agent held it already: only its expiry was moved
					s.op = history.OpRenew
				}
				add(c, c.answer.At, s)
				written[s.once()] = true
			}
		}
	}
	for _, c := range calls {
		if c.settled() || c.failed() {
			continue
		}
		for _, s := range r.landed(c, rows, unclear) {
			if once := s.once(); once == "" || !written[once] {
				add(c, never, s)
				written[once] = true
			}
		}
	}
	return steps, unclear
}

// once returns a name for a step that can happen only once: the insert of an item, its claim with a lock_id, the end of
// an attempt, or the late report about an attempt in doubt. For other steps it returns "".
func (s step) once() string {
	switch {
	case s.op == history.OpComplete:
		return fmt.Sprint(s.id, "/", s.lock)
	case s.op == history.OpClaim:
		return fmt.Sprint(s.id, "+", s.lock)
	case s.op == history.OpUpdate && s.outcome != "" && s.before != nil && s.before.phase == doubtful:
		return fmt.Sprint(s.id, "/", s.lock, "/late")
	case s.op == history.OpUpdate && s.outcome != "":
		return fmt.Sprint(s.id, "/", s.lock)
	case s.op == history.OpUpdate && s.before == nil:
		return fmt.Sprint(s.id)
	}
	return ""
}

// transitions returns the steps of a transaction: for each item from the state that was read first to the state that
// was left.
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

// modelled returns the state of the model for a state of the history.
func modelled(s *history.State) *item {
	if s == nil {
		return nil
	}
	p := map[ledger.State]phase{ledger.StateWaiting: open, ledger.StateReady: open, ledger.StateLeased: leased,
		ledger.StateDoubt: doubtful, ledger.StateDead: dead, "": finished}[ledger.State(s.State)]
	return &item{p, s.Attempt, s.Lock, s.Until}
}

// landed returns the steps of a call without an answer that took effect, as the rows show. If they cannot show it,
// landed adds the item to unclear.
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
	case history.OpRenew: // it may have moved the expiry: no row shows that
		for _, it := range c.Items {
			if a, ok := byLock(rows[it.ID], it.Lock); ok && a.Outcome.TakenBack() {
				unclear[it.ID] = true
			}
		}
	case history.OpUpdate:
		for _, s := range transitions(c.Items) {
			switch {
			case s.after == nil: // it only read the item
			case s.outcome != "":
				for _, a := range rows[s.id] {
					if a.Attempt == s.attempt && a.LockID == s.lock && string(a.Outcome) == s.outcome {
						steps = append(steps, s)
					}
				}
			case s.before == nil:
				if _, exists := rows[s.id]; exists {
					steps = append(steps, s)
				}
			default:
				unclear[s.id] = true
			}
		}
	}
	return steps
}
