// Package code names the numbers that the databases keep for states, outcomes and the like. Statements
// are put together from these names, so that no bare number stands in them and a partial index is
// named by the very text that the schema has.
package code

import (
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// States of a row of the backlog, in the column state. Dead and Doubt are stuck: at least Dead.
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

// Lists of codes, for IN. Completed, Failures, GaveUp and Uncertain are what the methods of [ledger.Outcome] report.
// Each outcome must be in exactly one of Closed, Failures and NoVerdict, else no index has it: lists of attempts by
// their end read one index for each of these. The partial indexes of the schema have the lists as text.
const (
	Unstuck   = "(" + Waiting + ", " + Ready + ", " + Leased + ")"
	Completed = "(" + Done + ", " + Skipped + ")"
	Closed    = "(" + Done + ", " + Skipped + ", " + Cancelled + ")" // by the handler or by a person
	Failures  = "(" + Failed + ", " + Crashed + ")"
	GaveUp    = "(" + Failed + ", " + Lost + ", " + Crashed + ")" // of a final attempt: its round failed for good
	Uncertain = "(" + Unknown + ", " + Lost + ")"                 // it may or may not have taken effect
	NoVerdict = "(" + Snoozed + ", " + Released + ", " + Unknown + ", " + Lost + ")"
)

// PutOff is the code of an attempt with which a person put an item off, as text.
const PutOff = "'put_off'"

// The column gate of a row of the backlog. While limit_key is set, the row counts under a limit, and the gate tells
// since when.
const (
	Free         = "0" // limit_key is NULL: it counts under no limit
	LeasedBefore = "0" // it was leased when the limit was set, so it may be beyond the limit
	Filed        = "1" // by a claim, before it was leased
)

// states are those of a row of the backlog, in the order of their codes.
var states = []ledger.State{ledger.StateWaiting, ledger.StateReady, ledger.StateLeased, ledger.StateDead,
	ledger.StateDoubt}

// States are the states that a row of the backlog may have.
func States() []ledger.State { return slices.Clone(states) }

// OfState is the code of a state. A state that no row may have has −1, and a CHECK refuses that.
func OfState(s ledger.State) int16 { return int16(slices.Index(states, s)) }

// State is the state with a code.
func State[T int16 | int64](code T) ledger.State { return states[code] }

// OfOutcome is the code of an outcome. One that does not exist has −1, and a CHECK refuses that.
func OfOutcome(o ledger.Outcome) int16 { return int16(slices.Index(ledger.Outcomes, o)) }

// Outcome is the outcome with a code.
func Outcome[T int16 | int64](code T) ledger.Outcome { return ledger.Outcomes[code] }
