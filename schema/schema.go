// Package schema holds the migrations of both databases and nothing else: the same numbers and
// names on both sides, so that comparing the two folders shows where they differ.
//
// The files carry goose's markers; the stores apply them with goose as a library, into the
// version table ledger_migrations. On Postgres they run with search_path set to the ledger's
// schema. Within a release series a migration only adds; each states in ledger_meta, under
// compatible_from, the lowest schema number that a program must know to go on using the ledger.
// Programs that are running look every few seconds (ledger.Schema): until then they go on as before, and
// afterwards still end what they had begun. A migration that cannot put up with that has to make their
// statements fail, by other names of tables and columns; what they hold is then taken back as leases expire.
package schema

import "embed"

// Postgres and SQLite are the migrations, in a folder of the database's name.
var (
	//go:embed postgres/*.sql
	Postgres embed.FS
	//go:embed sqlite/*.sql
	SQLite embed.FS
)

// Version is the number of the newest migration.
const Version = 11

// Table is goose's version table.
const Table = "ledger_migrations"
