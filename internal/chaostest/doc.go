// Package chaostest tries to make ledgerd lose an item, or work one twice at once. A run starts real
// ledgerd processes, chaos builds that record their calls of the ledger (see [Build]), on a ledger
// of its own. It gives them work, and a [Fault] disturbs them: kills, freezes, databases that crash,
// connections that are cut at the worst moment, disks that fill up, plugins that misbehave, clocks
// that are wrong. Then the faults stop, everything must be worked off in bounded time, and the
// checkers of internal/historytest look at what happened.
//
// A run follows from its seed as far as processes can: a [Plan] decides what happens; when, to the
// microsecond, the machine decides. So a failed run is judged again from what it left, by [Judge],
// and need not happen again. A run in which too little was done, or which no fault hit, is void: it
// proves nothing.
package chaostest
