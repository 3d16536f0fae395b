// Package tables copies a ledger as a whole from one database to another, table by table.
//
// It knows no items: a store reads and writes rows, and [Copy] makes sure that all of them arrive unchanged. So nothing
// here changes when the schema gets a column. Package schema lists the tables, and the stores read the names of their
// columns from the database.
//
// A value is nil (NULL), an int64, a string or a []byte. Numbers and truth values are int64, times are microseconds
// since 1970, tokens are their 16 bytes, lists of texts are JSON: the form in which SQLite keeps them. A store that
// keeps them in another form converts.
package tables

import "context"

// Table is one table of a ledger.
type Table struct {
	Name    string
	Columns []string
	Key     []string // columns that order the rows: unique together, never NULL
}

// Row has the values of one row in the order of the table's Columns.
type Row []any

// Reader reads tables as they are at one moment.
type Reader interface {
	// Tables are those of package schema, in its order, Meta first.
	Tables() ([]Table, error)
	// Scan calls each for the rows of a table, in the order of the key. The row is valid only during the call. each must
	// not use the Reader.
	Scan(t Table, each func(Row) error) error
	// Sequence is the greatest number that the table has given to a row, even if that row is gone; 0 if the table gives
	// its rows no numbers.
	Sequence(t Table) (int64, error)
}

// Writer changes tables in one transaction.
type Writer interface {
	Reader
	Empty(t Table) (bool, error)
	Insert(t Table, rows []Row) error
	// SetMeta writes a row of Meta, over the row with the same key.
	SetMeta(key, value string) error
	// SetSequence makes the next number that the table gives greater than last.
	SetSequence(t Table, last int64) error
}

// Store are the methods that a store has beside those of ledger.Store, so that it can be copied.
type Store interface {
	// ReadTables calls fn with the ledger as it is at one moment.
	ReadTables(ctx context.Context, fn func(Reader) error) error
	// WriteTables calls fn in one transaction and commits it if fn returns nil. Other programs cannot write meanwhile.
	WriteTables(ctx context.Context, fn func(Writer) error) error
}
