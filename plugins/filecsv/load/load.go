// Package load loads the rows of a file into a table of SQLite or Postgres: all of them or none, and once, however
// often the item of the file is worked.
//
// One transaction writes the rows together with a marker, a row of the table ledgerd_loads with the item, its round,
// the attempt and the digest of the file. If the marker of the round has the same digest, nothing is left to load. If
// the marker of a later attempt has another digest, the attempt is stale and is refused. So an attempt may be killed
// at any point, the answer to its COMMIT may be lost, and an attempt that was taken for dead may continue. The
// database has the rows, and it also knows that it has them.
//
//	l, err := database.Begin(ctx, job)
//	defer l.Close()
//	for … { err = l.Add(values) }
//	done, err := l.Commit(ctx, digest)
//
// The transaction also replaces the earlier rows of the same file. For this, each row of a table made here has the
// number of its load in the column ledgerd_load. With a key, existing rows are updated instead. A file that only
// another kind has loaded into the table is refused, so that its rows are not there twice.
//
// Rows go to Postgres by COPY and to SQLite by prepared statements of several rows each. Neither keeps more than some
// hundred rows in memory. The transaction makes the table if it does not exist: an attempt that fails leaves none.
// Other loads wait for the one that makes it.
//
// On SQLite a load holds the file's only write lock from its first row to its last.
package load

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Item is the item whose rows are loaded.
type Item struct {
	ID               int64
	Kind, Scope, Key string
	Round            string // the idempotency key
	Attempt          int64
	IsFile           bool // Key is the path of the file, so it means the same file for every kind
}

// identity returns the item in a form that fits an index. Attempts of one identity are fenced.
func (i Item) identity() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%d", i.Kind, i.Scope, i.Key, i.ID))
	return hex.EncodeToString(sum[:])
}

// Reload chooses what happens to rows that were loaded from the same file before. With a key it has no effect.
type Reload string

const (
	Replace    Reload = "replace"     // they are replaced; refused if only another kind has loaded the file
	ReplaceAll Reload = "replace_all" // they are replaced, also those that other kinds have loaded
	ReplaceOwn Reload = "replace_own" // those of this kind are replaced, those of other kinds stay
	Append     Reload = "append"      // they stay
)

// Type is the type of a column of a new table.
type Type int

const (
	Text Type = iota
	Int
	Decimal
	Bool // as 1 and 0
	Date // as 2026-11-20
	Time // as 2026-11-20 10:00:00Z

	// Only of columns that are there: whole numbers of fewer bits, and any numbers of which whole ones have 64 bits.
	Int16
	Int32
	Whole64
)

// Column is a column of the file.
type Column struct {
	Name string
	Type Type
}

// Job describes a load.
type Job struct {
	Item    Item
	Table   string            // "people" or "sales.people"; letters, digits and _
	Columns []Column          // of the file, from left to right
	Map     map[string]string // column of the table by column of the file; empty: all, by their names
	Key     []string          // columns of the file that identify a row: one that is in the table is updated
	Reload  Reload            // "" means Replace
	// Digest returns the digest that Commit will get. It is called if an attempt has loaded the item before.
	Digest func() (string, error)
}

// Done is the result of a load.
type Done struct {
	Table    string
	Rows     int64
	Replaced int64 // rows of the same file that were removed
	Created  bool  // the load made the table
	Gone     int64 // other files with rows in an earlier table of this name
	Already  bool  // an earlier attempt had loaded the same
	Attempt  int64 // the attempt that loaded it
}

// Load is a load that has begun.
type Load struct {
	database *Database
	job      Job
	conn     *sql.Conn
	sink     sink
	pick     []int  // the columns of the file that go into the table
	tag      []byte // the number of the load, written to each of its rows; nil: the table has no column for it
	values   [][]byte
	done     Done
	marker   *marker  // of an attempt that has loaded the same rows; nil if there is none, else nothing is written
	gone     []marker // markers whose rows are no longer in the table
	had      bool     // the table had rows of the file from this kind; supersede has removed them
	open     bool     // a transaction is open
}

// into is the destination of a sink.
type into struct {
	table   string // quoted
	columns []string
	key     []string // of columns; none: rows are only added
}

// sink takes rows within the transaction.
type sink interface {
	add(ctx context.Context, values [][]byte) error
	end(ctx context.Context) error // writes the remaining rows
	abandon()                      // no further rows come
}

// Begin starts a load, and makes the table if it does not exist. If an attempt has loaded the same before, nothing is
// written: Add drops the rows.
func (d *Database) Begin(ctx context.Context, job Job) (_ *Load, err error) {
	l := &Load{database: d, job: job, done: Done{Table: job.Table, Attempt: job.Item.Attempt}}
	if err := d.checkTable(job.Table); err != nil {
		return nil, err
	}
	if l.conn, err = d.db.Conn(ctx); err != nil {
		return nil, d.explain("connect", err)
	}
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	if err := d.prepare(ctx, l.conn); err != nil {
		return nil, err
	}
	if err := l.earlier(ctx, job.Digest); err != nil || l.marker != nil {
		return l, err
	}
	if err := d.beginTx(ctx, l.conn); err != nil {
		return nil, err
	}
	l.open = true
	if d.oneWriter { // the markers read before may have changed
		if err := l.earlier(ctx, job.Digest); err != nil || l.marker != nil {
			return l, err
		}
	}
	into, err := l.target(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.supersede(ctx); err != nil {
		return nil, err
	}
	if l.sink, err = d.newSink(ctx, l.conn, into); err != nil {
		return nil, d.cannotUpdate(err, into)
	}
	return l, nil
}

// Add loads a row: a value for each column of the file, nil for none. It does not keep the values.
func (l *Load) Add(ctx context.Context, row [][]byte) error {
	if l.marker != nil {
		return nil
	}
	l.values = l.values[:0]
	for _, i := range l.pick {
		l.values = append(l.values, row[i])
	}
	if l.tag != nil {
		l.values = append(l.values, l.tag)
	}
	l.done.Rows++
	return l.database.explain("load", l.sink.add(ctx, l.values))
}

// Commit writes the marker and commits. digest is that of the file with the rows.
func (l *Load) Commit(ctx context.Context, digest string) (Done, error) {
	d, item := l.database, l.job.Item
	if l.marker == nil {
		if err := l.sink.end(ctx); err != nil {
			return Done{}, d.explain("load", err)
		}
		if d.lockSource != "" {
			if _, err := l.conn.ExecContext(ctx, d.lockSource, item.Key); err != nil {
				return Done{}, d.explain("load", err)
			}
		}
		if err := l.earlier(ctx, func() (string, error) { return digest, nil }); err != nil {
			return Done{}, err
		}
	}
	if l.marker != nil {
		return Done{Table: l.marker.target, Rows: l.marker.rows, Already: true, Attempt: l.marker.attempt}, nil
	}
	if err := l.supersede(ctx); err != nil { // rows that another load committed meanwhile
		return Done{}, err
	}
	tag := sql.NullString{String: string(l.tag), Valid: l.tag != nil}
	_, err := l.conn.ExecContext(ctx, d.insertMarker, item.identity(), item.Round, item.Kind, item.Scope, item.Key,
		item.Attempt, l.job.Table, l.done.Rows, digest, tag)
	if err == nil && l.tag != nil && l.replacing() {
		_, err = l.conn.ExecContext(ctx, d.dropMarkers, item.identity(), item.Round, item.Attempt, l.job.Table)
	}
	if err == nil {
		_, err = l.conn.ExecContext(ctx, "COMMIT")
	}
	if err != nil {
		return Done{}, d.explain("commit", err)
	}
	l.open = false
	return l.done, nil
}

// Close rolls back unless the load was committed.
func (l *Load) Close() {
	if l.sink != nil {
		l.sink.abandon()
		l.sink = nil
	}
	if l.open {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if _, err := l.conn.ExecContext(ctx, "ROLLBACK"); err != nil {
			_ = l.conn.Raw(func(any) error { return driver.ErrBadConn }) // the pool must not reuse it
		}
		l.open = false
	}
	_ = l.conn.Close() // a second Close returns an error
}

// target makes the table if it does not exist, chooses the table's column for each column of the file, and returns
// the names of these columns.
func (l *Load) target(ctx context.Context) (to into, err error) {
	d, wanted := l.database, make([]Column, 0, len(l.job.Columns))
	for i, c := range l.job.Columns {
		name, mapped := l.job.Map[c.Name]
		switch {
		case len(l.job.Map) == 0:
			name = c.Name
		case !mapped:
			continue
		}
		l.pick, wanted = append(l.pick, i), append(wanted, Column{name, c.Type})
	}
	if len(wanted) < len(l.job.Map) || len(wanted) == 0 {
		return to, l.unmapped()
	}
	key, err := l.key(wanted)
	if err != nil {
		return to, err
	}
	have, err := d.columns(ctx, l.conn, l.job.Table)
	if err == nil && len(have) == 0 {
		if err := d.checkNames(wanted); err != nil {
			return to, err
		}
		if err := l.create(ctx, wanted, key); err != nil {
			return to, err
		}
		have, err = d.columns(ctx, l.conn, l.job.Table) // another load may have made it
	}
	if err != nil {
		return to, err
	}
	tagged := indexOf(have, tagColumn)
	if tagged >= 0 {
		have = slices.Delete(have, tagged, tagged+1)
	}
	to.table = quoteTable(l.job.Table)
	if to.columns, err = match(l.job.Table, wanted, namesOf(have)); err != nil {
		return to, err
	}
	if err := l.checkTypes(wanted, to.columns, have); err != nil {
		return to, err
	}
	for i, w := range wanted {
		if slices.Contains(key, w.Name) {
			to.key = append(to.key, to.columns[i])
		}
	}
	if tagged >= 0 {
		l.tag = strconv.AppendInt(nil, rand.Int64(), 10)
		to.columns = append(to.columns, tagColumn)
	}
	return to, nil
}

// key returns the names of the key columns in the table.
func (l *Load) key(wanted []Column) (names []string, err error) {
	for _, k := range l.job.Key {
		i := slices.IndexFunc(l.pick, func(i int) bool { return l.job.Columns[i].Name == k })
		if i < 0 {
			return nil, &Error{Code: "missing_column", Text: fmt.Sprintf("key: column %q of the file is not loaded", Shown(k))}
		}
		names = append(names, wanted[i].Name)
	}
	return names, nil
}

// unmapped explains that the file lacks a column that the mapping names.
func (l *Load) unmapped() error {
	there := map[string]bool{}
	for _, c := range l.job.Columns {
		there[c.Name] = true
	}
	for name := range l.job.Map {
		if !there[name] {
			return &Error{Code: "missing_column", Text: fmt.Sprintf("into: the file has no column %q", Shown(name))}
		}
	}
	return &Error{Code: "missing_column", Text: "the file has no columns to load"}
}

// mapping shows how people map columns.
const mapping = "--set into.COLUMN_OF_THE_FILE=COLUMN_OF_THE_TABLE, for each column that is to be loaded: others " +
	"are left out then"

// match finds the columns of the table: by the same name, else by a name that differs only in case.
func match(table string, wanted []Column, have []string) ([]string, error) {
	var names, missing []string
	taken := map[string]string{}
	for _, w := range wanted {
		found := ""
		for _, h := range have {
			if h == w.Name {
				found = h
				break
			}
			if strings.EqualFold(h, w.Name) {
				found = h
			}
		}
		switch other, twice := taken[found]; {
		case found == "":
			missing = append(missing, fmt.Sprintf("%q", Shown(w.Name)))
		case twice:
			return nil, &Error{Code: "columns", Text: fmt.Sprintf("the columns %q and %q of the file would both go into "+
				"column %q of the table: say which one with %s", Shown(other), Shown(w.Name), Shown(found), mapping)}
		}
		taken[found] = w.Name
		names = append(names, found)
	}
	if len(missing) > 0 {
		return nil, &Error{Code: "columns", Text: fmt.Sprintf("table %s has no column %s; it has %s: say which column "+
			"goes where with %s",
			table, list(missing), list(have), mapping)}
	}
	return names, nil
}
