// Package historytest judges what happened to a ledger: it reads the histories of all processes of a run
// (internal/history) and the rows that are left at its end, and lists every promise that was broken.
//
// Two checkers look at the same history, because each misses something. [Leases] goes once over the claims
// and ends of every item, by the database's clock alone. [Linear] asks porcupine whether the calls, with the
// times at which they began and ended, have an order in which every answer is right (Herlihy and Wing,
// "Linearizability", 1990; Horn and Kroening, "Faster linearizability checking via P-compositionality", 2015:
// an item is a partition). [Effects] looks at effects, [Drains] at drains that reported that nothing was left, and
// [Overtaking] at the order of claims.
//
// A call without an answer may or may not have taken effect. The rows often show it: every claim that ended is an
// attempt. Items of which they do not show it are left out of [Linear] and counted.
package historytest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/internal/history"
	"github.com/ledgerd/ledgerd/ledger"
)

// Run is a run after its end: the faults are over, and all items that could be worked were.
type Run struct {
	Lines []history.Line // of all processes, in any order
	Items []ledger.Audited
	// Steady means that the database's clock was not moved during the run.
	Steady bool
	// Offset is the database's clock less CLOCK_MONOTONIC, in microseconds.
	Offset  int64
	Drains  []Drain
	Effects []Effect
}

// Drain is a run of a worker that ended because no item of its kinds was left.
type Drain struct {
	Kinds            []string
	Called, Returned int64 // CLOCK_MONOTONIC, nanoseconds
	Patience         int64 // how long it waits for an item that is due later, microseconds
}

// Effect is what a plugin did in an attempt. The plugin writes it down before it reports a result.
type Effect struct {
	Key, IdempotencyKey string
	Attempt             int64
}

// Violation is a broken promise.
type Violation struct {
	Rule string // "S1" … of docs/design.md, or the name of a checker
	Item int64
	Text string
}

func (v Violation) String() string { return fmt.Sprintf("%s: item %d: %s", v.Rule, v.Item, v.Text) }

// call is one call with its answer.
type call struct {
	history.Line               // as it began
	answer       *history.Line // nil if there is none
}

// settled reports whether the call certainly took effect as its answer states.
func (c *call) settled() bool { return c.answer != nil && c.answer.Error == "" }

// failed reports whether the call certainly had no effect.
func (c *call) failed() bool { return c.answer != nil && c.answer.Error != "" && !c.answer.Unknown }

// calls returns the calls with their answers, in the order in which they began.
func (r *Run) calls() []*call {
	type key struct {
		process string
		n       int64
	}
	found := map[key]*call{}
	for _, l := range r.Lines {
		k := key{l.Process, l.Call}
		switch l.Phase {
		case history.Begin:
			if c := found[k]; c != nil { // its transaction was repeated
				c.Items = l.Items
			} else {
				found[k] = &call{Line: l}
			}
		case history.End:
			if c := found[k]; c != nil {
				c.answer = &l
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *call) int { return cmp.Compare(a.At, b.At) })
}

// Unanswered counts the calls of which no answer shows whether they took effect.
func (r *Run) Unanswered() (n int) {
	for _, c := range r.calls() {
		if !c.settled() && !c.failed() {
			n++
		}
	}
	return n
}

// rows returns the attempts of each item at the end.
func (r *Run) rows() map[int64][]ledger.Attempt {
	rows := make(map[int64][]ledger.Attempt, len(r.Items))
	for i := range r.Items {
		rows[r.Items[i].ID] = r.Items[i].Attempts
	}
	return rows
}

// live returns the leases that are in force at the end. They are those of people, unless a drain has failed.
func (r *Run) live() map[int64]*ledger.Work {
	live := map[int64]*ledger.Work{}
	for i := range r.Items {
		if w := r.Items[i].Work; w != nil && w.State == ledger.StateLeased {
			live[r.Items[i].ID] = w
		}
	}
	return live
}

// person reports whether an agent is a person: the name of a program has a slash.
func person(agent string) bool { return !strings.Contains(agent, "/") }

// claimed returns the attempts that began with a claim. The other rows are verdicts of people and late reports.
func claimed(rows []ledger.Attempt) (claims []ledger.Attempt) {
	for _, a := range rows {
		if a.LockID != "" && !a.LeasedAt.IsZero() {
			claims = append(claims, a)
		}
	}
	return claims
}

// byLock returns the attempt that began with the claim of this lock_id.
func byLock(rows []ledger.Attempt, lock string) (ledger.Attempt, bool) {
	claims := claimed(rows)
	if i := slices.IndexFunc(claims, func(a ledger.Attempt) bool { return a.LockID == lock }); i >= 0 {
		return claims[i], true
	}
	return ledger.Attempt{}, false
}
