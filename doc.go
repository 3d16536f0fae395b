// Package ledgerd holds no code. It is the map of the tree; its tests check that the map is complete and that the
// imports below hold.
//
// A ledger remembers items of work, leases each to one worker at a time and records how it ended. The workers run
// plugins, in processes of their own. The tree has three parts: the ledger (ledger, schema), the plugins (sdk,
// plugins), and the programs that join them (internal, ui, cmd). The ledger and the plugins never import each other.
//
// The ledger:
//
//	ledger               the model and every rule; the Store interface that it needs
//	ledger/act           what can be done next: the acts that reasons and errors return, for programs to word
//	ledger/bounds        how long names and texts may be, how many items one call takes, how long a lease lasts
//	ledger/filter        the language of --where
//	ledger/order         the orders in which a walk goes through items
//	ledger/stats         the figures of a ledger: what is open, what ended, how fast
//	ledger/definition    what works a kind, with which settings
//	ledger/cause         what failures of different items have in common
//	ledger/payload       defaults of the fields of payloads, one payload over another
//	ledger/invariant     the rules that hold in every ledger, and what a check has found broken
//	ledger/health        how the processes of plugins are, as heartbeats tell
//	ledger/process       names of processes, and whether one is gone
//	ledger/tracing       trace contexts of the W3C as items keep them; the spans of a ledger and a worker
//	ledger/scheduler     which ready items a claim leases: order, shards, limits
//	ledger/recurrence    the periods of recurring items
//	ledger/finding       what a look at a database, a machine or a plugin found, for doctor
//	ledger/sqlite        a Store on SQLite
//	ledger/postgres      a Store on Postgres
//	ledger/internal      what both of these share: sqlstore, statements that differ in dialect only; where, filters as
//	                     conditions; code, the numbers of states and outcomes; wait, pauses that end with a context
//	ledger/memory        a Store in memory: the specification in code
//	ledger/storetest     the conformance suite that all stores pass
//	ledger/tables        a ledger as its tables, copied from one database to another
//	ledger/worker        claim, handle, finish: the loop, usable in any Go program
//	ledger/typed         kinds with a type: values are added, handlers get values
//	ledger/follow        attempts of all processes as they end
//	ledger/ledgertest    for tests of programs: ledgers, a clock, what is due worked at once, what a transaction added
//	ledger/txn           transactions of your own: repeated as a whole, with entity locks
//	ledger/lockable      claims of rows of a table of one's own; no ledger is needed
//	ledger/locks         named locks with a time to live and a fencing number
//	schema               the SQL migrations of both databases, nothing else
//
// The plugins:
//
//	sdk                  what the author of a plugin sees
//	sdk/wire             the protocol and the handshake
//	sdk/settings         config and payload as types: defaults, ranges, JSON Schema
//	sdk/redact           secrets are taken out of texts
//	sdk/sdktest          the author's test kit
//	sdk/node             the SDK for plugins in JavaScript; sdk/python is that for Python
//	sdk/template         the plugins that "ledgerd plugin new" begins with
//	plugins/NAME         the plugins that come with ledgerd
//	plugins/internal     what those share: failure, errors with a code; itemfile, files below a folder; web, requests to
//	                     other people's servers; rawtest and manualtest, their tests
//
// The programs that join them:
//
//	internal/pluginproc  one plugin process, by sdk/wire only; conformance judges a plugin, acttest other SDKs
//	internal/pluginhost  many plugin processes, as handlers for ledger/worker
//	internal/pluginstore the programs of plugins that were added to a machine; internal/download, from URLs
//	internal/kinds       kinds of work as this machine knows them: policy, config and plugin together
//	internal/runner      the worker and plugin processes of one process, and what becomes of chosen items
//	internal/dburl       where a ledger is: the URL, and what differs between the databases
//	internal/ledgers     a ledger over its database or over HTTP: the interface of both
//	internal/remote      a ledger over the HTTP API of another ledgerd; internal/calls, what goes between the two
//	internal/config      the config file, the environment and the flags, as one configuration
//	internal/initproc    process 1 of a container: reaps orphans and passes signals on
//	internal/hostcheck   limits of this machine, for doctor
//	internal/intake      what people type and list, made into items and added; internal/query reads lists
//	internal/failure     errors for programs and people: code, message, hint
//	internal/api         the HTTP API: one table of routes; access decides who may ask for what, clientgen makes clients
//	internal/mcp         tools for AI agents over the Model Context Protocol, a client of the HTTP API
//	ui                   the pages of a ledger, a client of the HTTP API
//	internal/answer      what programs are told about a ledger: the types of -o json and of the API
//	internal/report      answers as tables, CSV and JSON; internal/shell quotes words of the commands in them
//	internal/source      what fills a ledger: folders, lists, queries, each on its schedule
//	internal/lending     leases lent to programs that do not reach the database
//	internal/otlp        spans of this program, sent to a collector
//	internal/daemon      a worker that is left running: sources, health, metrics, systemd
//	internal/pgcancel    calls to Postgres that are given up ask the server to stop
//	internal/lazyregexp  patterns that are compiled when they are first needed
//	internal/cli         the command line: item, work, plugin, setup have one file per command, of its name;
//	                     app is what they share, input names inputs, attention words what needs a person
//	internal/version     which build this is
//	cmd/ledgerd          the program: signals, and the plugins that are linked into it
//	clients              the clients of the HTTP API in Python and TypeScript, as clientgen makes them
//	examples             sample input and programs to copy from
//
// Tests and measurements:
//
//	internal/pgtest      a real Postgres for tests; internal/apt installs what tests need, internal/stracetest brings
//	                     faults of system calls; internal/childtest starts a test's own binary as other processes
//	internal/must        ends a test at an error; internal/schematest makes ledgers of older schemas
//	internal/webtest     the pages in a real browser, a module of its own
//	internal/failpoint   named moments at which the chaos harness kills a process
//	internal/history     what processes asked of a ledger; internal/recorder writes it
//	internal/historytest judges histories
//	internal/chaostest   real processes under faults; cmd/ledgerchaos runs it
//	internal/mutanttest  plants bugs, each of which must be caught
//	bench                how fast ledgerd is, beside other job queues; a module of its own
//
// Imports:
//
//	cmd/ledgerd ─► internal/cli ─► internal/runner ─► internal/kinds ─► internal/pluginhost ─► ledger/worker ─► ledger
//	     │               │                                                        └──► internal/pluginproc ──► sdk/wire
//	     │               ├──► internal/dburl ──► ledger/sqlite, ledger/postgres ──► ledger, schema
//	     │               ├──► ui ──► internal/answer
//	     │               ├──► internal/api ──► internal/lending ──► ledger
//	     │               └──► internal/remote ──► internal/calls; internal/api imports it, too
//	     └──► plugins/NAME ──► sdk ──► sdk/wire
//
// Only internal/pluginhost and what is above it know both the ledger and the plugins. Package ledger alone decides what
// an item may do next: a Store stores, a plugin works.
package ledgerd
