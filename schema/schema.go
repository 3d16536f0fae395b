// Package schema holds the migrations of both databases and nothing else: the same numbers and
// names on both sides, so that comparing the two folders shows where they differ.
//
// The files carry goose's markers; the stores apply them with goose as a library, into the version table
// ledger_migrations. On Postgres they run with search_path set to the ledger's schema.
//
// Within a release series a migration only adds, or widens a CHECK (on SQLite by a new table of the same name). Each
// states in ledger_meta, under compatible_from, the lowest schema number that a program must know to go on using the
// ledger. Running programs read it every few seconds (ledger.Schema). Until then they go on as before; afterwards they
// begin nothing, and still end what they had begun. If a migration cannot allow that, it must make their statements
// fail by other names of tables and columns; their items are then taken back as leases expire.
package schema

import (
	"embed"
	"io/fs"
	"strconv"
)

//go:embed postgres/*.sql sqlite/*.sql
var files embed.FS

// Postgres and SQLite are the migrations, in a folder of the database's name.
var Postgres, SQLite fs.FS = files, files

// Version is the number of the newest migration. A file's name begins with its number, in five digits.
var Version = func() int {
	files, err := fs.ReadDir(Postgres, "postgres") // sorted by name
	if err != nil {
		panic("schema: " + err.Error())
	}
	n, err := strconv.Atoi(files[len(files)-1].Name()[:5])
	if err != nil {
		panic("schema: " + err.Error())
	}
	return n
}()

// Oldest is the number of the oldest ledgers that migrations bring up to date. Those of lower numbers were made by
// builds before the first release.
const Oldest = 17

// Table is goose's version table.
const Table = "ledger_migrations"
