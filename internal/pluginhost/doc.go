// Package pluginhost works kinds with plugins: it finds the program, starts it with its config,
// watches over it, and is a worker.Handler that hands its items to the process. It joins the ledger
// and the plugin protocol: only it and what is above it know both.
//
// # Items
//
// A [Host] is one plugin with one config. Items go to the process as far as it has granted
// credits, and each comes back as one result. The context of an item ends in the process when it
// ends here. Messages of a plugin are not trusted: results for items that it does not have are
// dropped, kinds that it did not declare are not emitted. The output of an item's last
// completed round is read for plugins that ask for it, before the item goes to the process.
//
// # When the process dies
//
// The attempts of all items in the process have crashed. The ledger counts crashes apart from failures:
// an item that was in the process at two crashes is claimed alone, so that the item that kills the
// process is found, and the others are done. The process is started again after 0.5 s, and after twice
// the time for each further crash. After 5 crashes in 10 minutes the host takes no items for 5 minutes
// and then tries one item at a time until one has ended. A process that does not answer three health
// checks in a row, one every 10 s, is frozen: it is killed, and this is a crash.
//
// If an item does not end within 5 s of its timeout, of its cancellation or of the loss of its lease,
// the process is killed and started again. This is no crash: the other items of the process are
// released. If their kind has on_lost = doubt, these items are in doubt instead, as they may have taken
// effect.
//
// # Goroutines
//
// Each process has two: tend waits for its end and ends overdue items, and watchHealth makes health checks. One more
// runs while a process is started or killed, and one for each item whose earlier output is being read. The goroutines
// of the stream belong to package pluginproc. All have ended when Close returns.
package pluginhost
