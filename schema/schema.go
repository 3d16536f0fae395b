// Package schema holds the migrations of both databases. A migration has the same number and name on both, so comparing
// the two folders shows where they differ.
//
// The files carry the markers of goose. The stores apply them with goose as a library, and record them in the table
// ledger_migrations. On Postgres they run with search_path set to the ledger's schema.
//
// Within a release series a migration only adds, or widens a CHECK (on SQLite by a new table of the same name). It
// writes into ledger_meta, under compatible_from, the lowest schema number that a program must know to go on using the
// ledger. Running programs read that number every few seconds (ledger.Schema). A program that is too old then begins
// nothing, and still ends what it has begun. If a migration cannot allow even that, it must rename tables or columns,
// so that the statements of older programs fail; their items are taken back as leases expire.
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
