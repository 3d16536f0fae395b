// Package code names the numbers that the databases store for states, outcomes and the like. Statements are built from
// these names. So they have no bare numbers, and the condition of a partial index is the same text as in the schema.
package code

import (
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// States of a row of the backlog, in the column state. Rows with a state of at least Dead are stuck: they wait for a
// person.
const (
	Waiting = "0"
	Ready   = "1"
	Leased  = "2"
	Dead    = "3"
	Doubt   = "4"
)

// Outcomes of an attempt, in the column outcome.
const (
	Done      = "0"
	Skipped   = "1"
	Failed    = "2"
	Snoozed   = "3"
	Released  = "4"
	Cancelled = "5"
	Unknown   = "6"
	Lost      = "7"
	Crashed   = "8"
)

// Lists of codes, for IN. Completed, Failures, GaveUp and Uncertain are the outcomes for which the methods of
// [ledger.Outcome] return true. Each outcome must be in exactly one of Closed, Failures and NoVerdict: each of these
// lists has an index, and lists of attempts by their end read these indexes only. The schema has the lists as text.
const (
	Unstuck   = "(" + Waiting + ", " + Ready + ", " + Leased + ")"
	Completed = "(" + Done + ", " + Skipped + ")"
	Closed    = "(" + Done + ", " + Skipped + ", " + Cancelled + ")" // by the handler or by a person
	Failures  = "(" + Failed + ", " + Crashed + ")"
	GaveUp    = "(" + Failed + ", " + Lost + ", " + Crashed + ")" // of a final attempt: its round failed for good
	Uncertain = "(" + Unknown + ", " + Lost + ")"                 // maybe it took effect
	NoVerdict = "(" + Snoozed + ", " + Released + ", " + Unknown + ", " + Lost + ")"
)

// PutOff is the code of an attempt with which a person put an item off, as text.
const PutOff = "'put_off'"

// Values of the column gate of a row of the backlog. While limit_key is set, the row counts under a limit, and the gate
// tells since when.
const (
	Free         = "0" // limit_key is NULL: it counts under no limit
	LeasedBefore = "0" // it was leased when the limit was set, so it may be beyond the limit
	Filed        = "1" // by a claim, before it was leased
)

// states are the states of a row of the backlog, in the order of their codes.
var states = []ledger.State{ledger.StateWaiting, ledger.StateReady, ledger.StateLeased, ledger.StateDead,
	ledger.StateDoubt}

// States are the states that a row of the backlog may have.
func States() []ledger.State { return slices.Clone(states) }

// OfState returns the code of a state. For a state that no row may have it is −1; a CHECK refuses that.
func OfState(s ledger.State) int16 { return int16(slices.Index(states, s)) }

// State returns the state with a code.
func State[T int16 | int64](code T) ledger.State { return states[code] }

// OfOutcome returns the code of an outcome. For one that does not exist it is −1; a CHECK refuses that.
func OfOutcome(o ledger.Outcome) int16 { return int16(slices.Index(ledger.Outcomes, o)) }

// Outcome returns the outcome with a code.
func Outcome[T int16 | int64](code T) ledger.Outcome { return ledger.Outcomes[code] }
