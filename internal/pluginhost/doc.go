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
// Everything that it had in hand has crashed. The ledger counts crashes apart from failures: an item
// that was there at two crashes is claimed alone, so that the one that kills the process is found
// and its neighbours are done. The process is started again after 0.5 s, twice that after each
// further crash; after 5 crashes in 10 minutes the host takes nothing for 5 minutes and then tries
// one item at a time until one has ended. A process that leaves three questions in a row
// unanswered, one every 10 s, is frozen: it is killed, and that is a crash.
//
// An item that does not end within 5 s of its timeout, of its cancellation or of the loss of its
// lease ends with the process: it is killed and started again, and what else it had in hand is
// released. That is no crash. If their kind has on_lost = doubt, these items are in doubt instead, as
// they may have taken effect.
//
// # Goroutines
//
// Two for each process: one that waits for its end and sees to overdue items, one that asks for its
// health. One more while a process is started or killed, and one for each item whose earlier output is
// being read. The goroutines of the stream are package pluginproc's. All have ended when Close returns.
package pluginhost
