package load

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/internal/lazyregexp"
)

// Database is a database that holds tables. SQLite and Postgres differ only in these fields.
type Database struct {
	db   *sql.DB
	path string // of SQLite

	begin         []string // statements that begin a transaction
	oneWriter     bool     // begin waits until no other program writes; the database has no schemas
	lockSource    string   // waits until no other load of the same file ends; "" if begin does
	insertMarker  string
	selectMarkers string
	dropMarkers   string // deletes the markers of earlier rounds whose rows were in the same table
	// The next three are about the loads of a kind, or of all kinds if it is "".
	untagged   string // the kind of a load of a file whose rows cannot be told from others
	loadsOf    string // the numbers of all loads of a file
	rowsOfLast string // the number of rows of the last load of a file

	kindsOf       string // the kinds with rows of a file in table %s; none if no other kind has loaded it
	makeMarkers   string
	marksOfTable  string // deletes the markers of a table
	filesOfTable  string // how many other files have rows in it, by their markers
	lockMaking    string // waits until no other load makes a table of this name
	selectColumns string // name, type and family of each column
	types         map[Type]string
	takes         map[Type]string // families of the columns that take values of a type
	changeType    string          // advice to change the type of a column, from table, column, type and kind by number
	foldsNames    bool            // names of columns are equal in any case
	maxName       int             // bytes
	systemColumns []string        // column names that every table has
	newSink       func(ctx context.Context, conn *sql.Conn, to into) (sink, error)
	reason        func(err error) (code string, again, known bool)
	noUniqueIndex func(err error) bool
}

// Open prepares a database by its URL, sqlite:PATH or postgres://…, and does not connect yet. The password is
// separate, "" for none. The error shows neither.
func Open(address, password string) (*Database, error) {
	if path, ok := strings.CutPrefix(address, "sqlite:"); ok {
		if !filepath.IsAbs(path) {
			return nil, errors.New("sqlite: must be followed by an absolute path")
		}
		return openSQLite(path)
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return nil, errors.New("must be sqlite:PATH or postgres://user@host/name")
	}
	if _, within := u.User.Password(); within || u.Query().Has("password") {
		return nil, errors.New("has a password in it, which others can see there: --with password=file:/PATH")
	}
	return openPostgres(address, password)
}

// Check connects to the database.
func (d *Database) Check(ctx context.Context) error {
	return d.explain("connect", d.db.PingContext(ctx))
}

// Close closes all connections.
func (d *Database) Close() error { return d.db.Close() }

// Error explains why a load failed.
type Error struct {
	Code  string
	Text  string
	Again bool // another attempt may succeed
	err   error
}

func (e *Error) Error() string { return e.Text }
func (e *Error) Unwrap() error { return e.err }

// Busy is the code of an Error that means only that another program is writing.
const Busy = "busy"

// explain converts an error of the driver to an Error. If it is no answer of the database, another attempt may
// succeed: the database is away, or ctx has ended.
func (d *Database) explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	if e := (*Error)(nil); errors.As(err, &e) {
		return err
	}
	code, again, known := d.reason(err)
	if !known {
		code, again = "database", true
	}
	text := fmt.Sprintf("%s: %.1000s", doing, err)
	if cannotOpen(err) { // the error has neither the file nor the cause
		text = fmt.Sprintf("%s: %s cannot be opened or made: is its folder there, and may ledgerd's user write to both?",
			doing, d.path)
	}
	return &Error{Code: code, Again: again, Text: text, err: err}
}

var tableForm = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?$`)

// checkTable refuses invalid table names, and tables that are not for files.
func (d *Database) checkTable(name string) error {
	if d.oneWriter && strings.Contains(name, ".") {
		return &Error{Code: "bad_table", Text: fmt.Sprintf("table: %q has a dot in it, and SQLite has no schemas",
			Shown(name))}
	}
	if !tableForm().MatchString(name) {
		return &Error{Code: "bad_table", Text: fmt.Sprintf("table: %q is not NAME or SCHEMA.NAME of letters, digits and _",
			Shown(name))}
	}
	for part := range strings.SplitSeq(strings.ToLower(name), ".") {
		for _, reserved := range []string{"ledger_", "ledgerd_", "sqlite_", "pg_", "information_schema"} {
			if strings.HasPrefix(part, reserved) {
				return &Error{Code: "bad_table", Text: fmt.Sprintf("table: %s is none to load files into", name)}
			}
		}
	}
	return nil
}

// checkNames refuses column names that a table cannot have, or not together.
func (d *Database) checkNames(columns []Column) error {
	seen := map[string]string{}
	for _, c := range columns {
		name := c.Name
		if strings.EqualFold(name, tagColumn) {
			return &Error{Code: "columns", Text: fmt.Sprintf("a column of the table cannot be called %s: give it another "+
				"name with %s", Shown(name), mapping)}
		}
		if d.foldsNames {
			name = strings.ToLower(name)
		}
		other, twice := seen[name]
		switch {
		case name == "" || strings.Contains(name, "\x00"):
			return &Error{Code: "columns", Text: fmt.Sprintf("%q is not a name for a column of the table: give it another with %s",
				Shown(c.Name), mapping)}
		case twice:
			return &Error{Code: "columns", Text: fmt.Sprintf("columns %q and %q would be one column of the table: give one "+
				"of them another name with %s", Shown(other), Shown(c.Name), mapping)}
		case slices.Contains(d.systemColumns, name):
			return &Error{Code: "columns", Text: fmt.Sprintf("each table of Postgres has a system column %q: give this one "+
				"another name with --set into.%s=…", name, name)}
		case len(c.Name) > d.maxName:
			return &Error{Code: "columns", Text: fmt.Sprintf("column %q is too long for a name in this database, which may "+
				"have %d bytes: give it another with %s", Shown(c.Name), d.maxName, mapping)}
		}
		seen[name] = c.Name
	}
	return nil
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func quoteTable(table string) string {
	parts := strings.Split(table, ".")
	for i, p := range parts {
		parts[i] = quote(p)
	}
	return strings.Join(parts, ".")
}

func quoteAll(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = quote(n)
	}
	return strings.Join(quoted, ", ")
}

// prepare makes the table of the markers.
func (d *Database) prepare(ctx context.Context, conn *sql.Conn) error {
	if d.oneWriter {
		ledger, err := d.columns(ctx, conn, "ledger_items")
		if err != nil {
			return err
		}
		if len(ledger) > 0 {
			return &Error{Code: "no_database", Text: "this file is a ledger, which could not work during a load: load into " +
				"another file"}
		}
	}
	have, err := d.columns(ctx, conn, markersTable)
	if err != nil || len(have) > 0 {
		return err
	}
	if err := d.beginTx(ctx, conn); err != nil {
		return err
	}
	if err = d.makeMarkersTable(ctx, conn); err != nil {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK") // the first error counts
	}
	return err
}

// makeMarkersTable makes the table of the markers, unless another process has made it meanwhile, and commits.
func (d *Database) makeMarkersTable(ctx context.Context, conn *sql.Conn) error {
	have, err := d.columnsToMake(ctx, conn, markersTable)
	if err != nil {
		return err
	}
	statements := []string{"COMMIT"}
	if len(have) == 0 {
		statements = []string{d.makeMarkers, "CREATE INDEX ledgerd_loads_source ON ledgerd_loads (item_key)", "COMMIT"}
	}
	return d.make(ctx, conn, statements)
}

// create makes the table, with a column for the number of the load, in the transaction of the load, unless another
// load has made it meanwhile. It deletes the markers of an earlier table of this name.
func (l *Load) create(ctx context.Context, columns []Column, key []string) error {
	d, conn, table := l.database, l.conn, l.job.Table
	if have, err := d.columnsToMake(ctx, conn, table); err != nil || len(have) > 0 {
		return err
	}
	parts := make([]string, len(columns))
	for i, c := range columns {
		parts[i] = quote(c.Name) + " " + d.types[c.Type]
	}
	parts = append(parts, tagColumn+" "+d.types[Int])
	name := fmt.Sprintf("%s_%08x", table, rand.Uint32()) // an index of SQLite keeps its name if its table is renamed
	statements := []string{
		"CREATE TABLE " + quoteTable(table) + " (" + strings.Join(parts, ", ") + ")",
		d.index("INDEX", table, name+"_load", []string{tagColumn}),
	}
	if len(key) > 0 {
		statements = append(statements, d.index("UNIQUE INDEX", table, name+"_key", key))
	}
	if err := d.make(ctx, conn, statements); err != nil {
		return err
	}
	l.done.Created = true
	err := conn.QueryRowContext(ctx, d.filesOfTable, table, l.job.Item.Key).Scan(&l.done.Gone)
	if err == nil {
		_, err = conn.ExecContext(ctx, d.marksOfTable, table)
	}
	return d.explain("making the table", err)
}

// index returns a statement that makes an index. Only SQLite needs a name for it.
func (d *Database) index(what, table, name string, columns []string) string {
	if d.oneWriter {
		what += " " + quote(name)
	}
	return "CREATE " + what + " ON " + quoteTable(table) + " (" + quoteAll(columns) + ")"
}

// columnsToMake waits until no other transaction makes the table, then returns its columns.
func (d *Database) columnsToMake(ctx context.Context, conn *sql.Conn, table string) ([]tableColumn, error) {
	if d.lockMaking != "" {
		if _, err := conn.ExecContext(ctx, d.lockMaking, table); err != nil {
			return nil, d.explain("making the table", err)
		}
	}
	return d.columns(ctx, conn, table)
}

// make executes the statements one after the other.
func (d *Database) make(ctx context.Context, conn *sql.Conn, statements []string) error {
	for _, statement := range statements {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return d.explain("making the table", err)
		}
	}
	return nil
}

func (d *Database) beginTx(ctx context.Context, conn *sql.Conn) error {
	for _, statement := range d.begin {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return d.explain("begin", err)
		}
	}
	return nil
}

// cannotUpdate explains an error of the sink, such as a missing unique index for the key.
func (d *Database) cannotUpdate(err error, to into) error {
	if len(to.key) > 0 && d.noUniqueIndex(err) {
		return &Error{Code: "no_unique_index", Text: fmt.Sprintf("key: table %s has no unique index of exactly these "+
			"columns: CREATE UNIQUE INDEX … ON %s (%s)",
			to.table, to.table, quoteAll(to.key))}
	}
	return d.explain("load", err)
}

// Columns returns the columns of a table, or none if the table does not exist. Each has the type by which its values
// are read: Date, Time, Int or one of fewer bits, Whole64, Decimal for all other numbers, or else Text.
func (d *Database) Columns(ctx context.Context, table string) (all []Column, err error) {
	if err := d.checkTable(table); err != nil {
		return nil, err
	}
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return nil, d.explain("connect", err)
	}
	defer conn.Close()
	have, err := d.columns(ctx, conn, table)
	for _, c := range have {
		all = append(all, Column{c.name, c.reads()})
	}
	return all, err
}

// Shown cuts a text if it is long.
func Shown(s string) string {
	if len(s) > 100 {
		return strings.ToValidUTF8(s[:100], "") + "…"
	}
	return s
}

// list joins up to 20 names for people, and counts the others.
func list(names []string) string {
	const most = 20
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}
