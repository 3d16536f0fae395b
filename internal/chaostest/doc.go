// Package chaostest tries to make ledgerd lose an item, or work one twice at the same time. A run starts real ledgerd
// processes, chaos builds that record their calls of the ledger (see [Build]), on its own ledger. It gives them work,
// and a [Fault] disturbs them: kills, freezes, databases that crash, connections that are cut at the worst moment,
// disks that fill up, plugins that misbehave, wrong clocks. Then the faults stop, all items must end in bounded time,
// and the checkers of internal/historytest check the histories.
//
// A run depends on its seed as far as processes allow: a [Plan] decides what happens, but the machine decides exactly
// when. A failed run cannot be repeated exactly, so [Judge] checks again the files that it left. A run is void, and
// proves nothing, if too few items were completed or no fault hit work in progress.
package chaostest
