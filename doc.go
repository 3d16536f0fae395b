// Package ledgerd holds no code: it is the map of the tree, and its test keeps the tree in order.
//
// A ledger remembers items of work, lends each to one worker at a time and records how it ended.
// The workers are plugins, processes of their own. The code is two islands and what joins them:
//
//	ledger               the model and every rule; the Store interface that it needs
//	ledger/sqlite        a Store on SQLite
//	ledger/postgres      a Store on Postgres
//	ledger/memory        a Store in memory: the specification in code
//	ledger/storetest     the conformance suite that all stores pass
//	ledger/tables        a ledger as its tables, copied from one database to another
//	ledger/worker        claim, handle, finish: the loop, usable in any Go program
//	ledger/txn           transactions of your own: repeated as a whole, with entity locks
//	ledger/lockable      claims of rows of a table of one's own; no ledger is needed
//	ledger/locks         named locks with a time to live and a fencing number
//	schema               the SQL migrations of both databases, nothing else
//
//	sdk                  what the author of a plugin sees
//	sdk/wire             the protocol and the handshake
//	sdk/sdktest          the author's test kit
//	sdk/node             the SDK for plugins in JavaScript
//	sdk/template         the plugins that "ledgerd plugin new" begins with
//	plugins/NAME         the plugins that come with ledgerd
//	plugins/internal     what those have in common: failures; web, for who asks servers of strangers; rawtest
//
//	internal/pluginproc  one plugin process: start, stream, stop; knows sdk/wire only
//	internal/pluginhost  many plugin processes, as handlers for ledger/worker
//	internal/pluginstore the programs of plugins that were added to a machine
//	internal/dburl       where a ledger is: the URL, and what differs between the databases
//	internal/config      the config file, the environment and the flags, as one configuration
//	internal/hostcheck   limits of this machine, for doctor
//	internal/inputs      what people type and list, made into items; internal/query reads lists
//	internal/report      answers as tables, CSV and JSON; internal/shell quotes words of the commands in them
//	internal/source      what fills a ledger: folders, lists, queries, each on its schedule
//	internal/daemon      a worker that is left running: sources, health, metrics, systemd
//	internal/pgtest      a real Postgres for tests
//	internal/exampletest the programs of the examples, as their tests run them
//	internal/failpoint   named moments at which the chaos harness kills a process
//	internal/history     what processes asked of a ledger; internal/recorder writes it
//	internal/historytest judges histories
//	internal/chaostest   real processes under faults; cmd/ledgerchaos runs it
//	internal/mutanttest  plants bugs, each of which must be caught
//	cmd/ledgerd          the program: one file per command, and all the wiring
//	examples             sample input and programs to copy from
//
// Who imports whom:
//
//	cmd/ledgerd ──► internal/pluginhost ──► ledger/worker ──► ledger
//	     │                  └──► internal/pluginproc ──► sdk/wire
//	     ├──► internal/dburl ──► ledger/sqlite, ledger/postgres ──► ledger, schema
//	     └──► plugins/NAME ──► sdk ──► sdk/wire
//
// The islands never import each other; only internal/pluginhost and the program know both. What
// an item may do next is decided in ledger alone: a Store stores, a plugin works.
package ledgerd
