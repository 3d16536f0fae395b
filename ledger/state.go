package ledger

// State is where an item stands.
type State string

const (
	StateWaiting   State = "waiting"   // due later
	StateReady     State = "ready"     // may be claimed now
	StateLeased    State = "leased"    // an agent works on it
	StateDead      State = "dead"      // no more attempts; a person decides
	StateDoubt     State = "doubt"     // may or may not have been done, must not be repeated; a person decides
	StateDone      State = "done"      // done or skipped
	StateCancelled State = "cancelled" // withdrawn by a person or a program
)

// States are all states, in the order of an item's life.
var States = []State{StateWaiting, StateReady, StateLeased, StateDead, StateDoubt, StateDone, StateCancelled}
