// Package historytest judges what happened to a ledger: it reads the histories of all processes of a run
// and the rows that are left at its end, and lists every promise that was broken.
//
// Two checkers look at the same history, because each misses something. [Leases] goes once over the claims
// and ends of every item, by the database's clock alone. [Linear] asks porcupine whether the calls, with the
// times at which they began and ended, have an order in which every answer is right (Herlihy and Wing,
// "Linearizability", 1990; Horn and Kroening, "Faster linearizability checking via P-compositionality", 2015:
// an item is a partition). Others look at effects, at drains that reported that nothing was left, and at
// items that were overtaken.
//
// A call without an answer may or may not have taken effect. The rows show the result, where every
// claim that ended is an attempt; unknown results are left out and counted.
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

// Run is one run that is over: faults are off and everything that could be worked was.
type Run struct {
	Lines []history.Line // of all processes, in any order
	Items []ledger.Audited
	// Steady means that the database's clock was not moved during the run.
	Steady bool
	// Offset is the database's clock less CLOCK_MONOTONIC, in microseconds.
	Offset int64
	// Drains are the calls that reported that nothing was left.
	Drains []Drain
	// Effects are the lines that plugins wrote before they reported.
	Effects []Effect
}

// Drain is a call that returned because nothing was left of its kinds; times by CLOCK_MONOTONIC.
type Drain struct {
	Kinds            []string
	Called, Returned int64 // nanoseconds
	Patience         int64 // microseconds
}

// Effect is what a plugin did.
type Effect struct {
	Key, IdempotencyKey string
	Attempt             int64
}

// Violation is a broken promise.
type Violation struct {
	Rule string // "S1" … as docs/design.md has them
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

// failed reports whether it certainly had no effect.
func (c *call) failed() bool { return c.answer != nil && c.answer.Error != "" && !c.answer.Unknown }

// calls puts beginnings and answers together, in the order in which they began.
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

// Unanswered is how many calls have no certain answer.
func (r *Run) Unanswered() (n int) {
	for _, c := range r.calls() {
		if !c.settled() && !c.failed() {
			n++
		}
	}
	return n
}

// rows are the attempts at the end, by item.
func (r *Run) rows() map[int64][]ledger.Attempt {
	rows := make(map[int64][]ledger.Attempt, len(r.Items))
	for i := range r.Items {
		rows[r.Items[i].ID] = r.Items[i].Attempts
	}
	return rows
}

// live are the leases that are in force at the end: of people, and no process waits for them.
func (r *Run) live() map[int64]*ledger.Work {
	live := map[int64]*ledger.Work{}
	for i := range r.Items {
		if w := r.Items[i].Work; w != nil && w.State == ledger.StateLeased && person(w.Agent) {
			live[r.Items[i].ID] = w
		}
	}
	return live
}

// person reports whether an agent is one: a program's name has a slash in it.
func person(agent string) bool { return !strings.Contains(agent, "/") }

// claimed are the attempts of an item that were claims: not the verdicts of people, nor late reports.
func claimed(rows []ledger.Attempt) (claims []ledger.Attempt) {
	for _, a := range rows {
		if a.LockID != "" && !a.LeasedAt.IsZero() {
			claims = append(claims, a)
		}
	}
	return claims
}

// byLock finds the attempt that a claim with this token became.
func byLock(rows []ledger.Attempt, lock string) (ledger.Attempt, bool) {
	for _, a := range claimed(rows) {
		if a.LockID == lock {
			return a, true
		}
	}
	return ledger.Attempt{}, false
}
