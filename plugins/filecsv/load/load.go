// Package load puts the rows of a file into a table of SQLite or Postgres: all of them or none, and
// once, however often the item of the file is worked.
//
// The rows are written in one transaction together with a marker, a row of the table ledgerd_loads
// that carries the item, its round and the attempt. Whoever finds the marker of the round has nothing
// to load any more and learns what was loaded; whoever finds the marker of a later attempt is stale
// and is refused. So it does not matter where an attempt is killed, whether its COMMIT was lost on the
// way, or whether one that was thought dead wakes up: the database, which has the rows, also knows
// that it has them.
//
//	l, err := database.Begin(ctx, job)
//	defer l.Close()
//	for … { err = l.Add(values) }
//	done, err := l.Commit(ctx, digest)
//
// Rows go to Postgres by COPY and to SQLite by prepared statements of several rows each. Neither keeps
// more than some hundred rows in memory. The table is made if it is not there, before the transaction
// and by itself: an attempt that fails leaves an empty one.
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
	"strings"
	"time"
)

// Item is whose rows are loaded.
type Item struct {
	Kind, Scope, Key string
	Round            string // the idempotency key
	Attempt          int64
}

// identity is the item in a form that an index can hold.
func (i Item) identity() string {
	sum := sha256.Sum256([]byte(i.Kind + "\x00" + i.Scope + "\x00" + i.Key))
	return hex.EncodeToString(sum[:])
}

// Type is what a column of a new table holds.
type Type int

const (
	Text Type = iota
	Int
	Decimal
	Bool // as 1 and 0
	Date // as 2026-11-20
	Time // as 2026-11-20 10:00:00Z
)

// Column is one of the file.
type Column struct {
	Name string
	Type Type
}

// Job is a load.
type Job struct {
	Item    Item
	Table   string            // "people" or "sales.people"; letters, digits and _
	Columns []Column          // of the file, from left to right
	Map     map[string]string // column of the table by column of the file; empty: all, by their names
}

// Done is what was loaded.
type Done struct {
	Table   string
	Rows    int64
	Created bool  // the table was
	Already bool  // it was there before this attempt
	Attempt int64 // which has loaded it
}

// Load is one that was begun.
type Load struct {
	database *Database
	job      Job
	conn     *sql.Conn
	sink     sink
	pick     []int // which columns of the file go into the table
	values   [][]byte
	done     Done
	marker   *marker // of an earlier attempt; then nothing is written
	open     bool    // the transaction
}

// sink takes rows within the transaction.
type sink interface {
	add(ctx context.Context, values [][]byte) error
	end(ctx context.Context) error // all rows are written
	abandon()                      // no further ones come
}

// marker says that a round of an item was loaded.
type marker struct {
	round, target, digest string
	attempt, rows         int64
}

// Begin makes the table if it is not there and begins to load. Nothing is written if the marker says
// that it was before: then rows are taken and dropped, and Commit compares.
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
	if l.marker, err = d.marker(ctx, l.conn, job.Item); err != nil || l.marker != nil {
		return l, err
	}
	names, err := l.target(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := l.conn.ExecContext(ctx, d.begin); err != nil {
		return nil, d.explain("begin", err)
	}
	l.open = true
	if d.oneWriter { // what was read before may have changed
		if l.marker, err = d.marker(ctx, l.conn, job.Item); err != nil || l.marker != nil {
			return l, err
		}
	}
	l.sink, err = d.newSink(ctx, l.conn, quoteTable(job.Table), names)
	return l, err
}

// Add loads a row: a value for each column of the file, nil for none. The values are read only until
// it returns.
func (l *Load) Add(ctx context.Context, row [][]byte) error {
	if l.marker != nil {
		return nil
	}
	l.values = l.values[:0]
	for _, i := range l.pick {
		l.values = append(l.values, row[i])
	}
	l.done.Rows++
	return l.database.explain("load", l.sink.add(ctx, l.values))
}

// Commit writes the marker and commits. digest is of the file that the rows are from.
func (l *Load) Commit(ctx context.Context, digest string) (Done, error) {
	d, item := l.database, l.job.Item
	if l.marker == nil {
		if err := l.sink.end(ctx); err != nil {
			return Done{}, d.explain("load", err)
		}
		if d.lockItem != "" {
			if _, err := l.conn.ExecContext(ctx, d.lockItem, item.identity()); err != nil {
				return Done{}, d.explain("load", err)
			}
		}
		var err error
		if l.marker, err = d.marker(ctx, l.conn, item); err != nil {
			return Done{}, err
		}
	}
	if l.marker != nil {
		return l.already(digest)
	}
	_, err := l.conn.ExecContext(ctx, d.insertMarker, item.identity(), item.Round, item.Kind, item.Scope, item.Key, item.Attempt, l.job.Table, l.done.Rows, digest)
	if err == nil {
		_, err = l.conn.ExecContext(ctx, "COMMIT")
	}
	if err != nil {
		return Done{}, d.explain("commit", err)
	}
	l.open = false
	return l.done, nil
}

// already says what an earlier attempt has loaded, if it is what this one was to.
func (l *Load) already(digest string) (Done, error) {
	m := l.marker
	if m.digest != digest || m.target != l.job.Table {
		return Done{}, &Error{Code: "loaded_otherwise", Text: fmt.Sprintf(
			"attempt %d has loaded another content (sha256 %.12s…, table %s) for the same round of this item: if the file has changed since, add it again; if two ledgers load into this database, give their kinds different names",
			m.attempt, m.digest, m.target)}
	}
	return Done{Table: m.target, Rows: m.rows, Already: true, Attempt: m.attempt}, nil
}

// Close rolls back what was not committed.
func (l *Load) Close() {
	if l.sink != nil {
		l.sink.abandon()
		l.sink = nil
	}
	if l.open {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if _, err := l.conn.ExecContext(ctx, "ROLLBACK"); err != nil {
			_ = l.conn.Raw(func(any) error { return driver.ErrBadConn }) // nobody is to get it as it is
		}
		l.open = false
	}
	_ = l.conn.Close() // a second time it is an error
}

// target makes the table if it is not there, decides which column goes where, and returns the names
// of the table's columns.
func (l *Load) target(ctx context.Context) ([]string, error) {
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
		return nil, l.unmapped()
	}
	have, err := d.columns(ctx, l.conn, l.job.Table)
	if err == nil && len(have) == 0 {
		if err := d.checkNames(wanted); err != nil {
			return nil, err
		}
		if err := d.create(ctx, l.conn, l.job.Table, wanted); err != nil {
			return nil, err
		}
		l.done.Created = true
		have, err = d.columns(ctx, l.conn, l.job.Table) // somebody may have been quicker
	}
	if err != nil {
		return nil, err
	}
	return match(l.job.Table, wanted, have)
}

// unmapped is for a file that does not have what the mapping names.
func (l *Load) unmapped() error {
	there := map[string]bool{}
	for _, c := range l.job.Columns {
		there[c.Name] = true
	}
	for name := range l.job.Map {
		if !there[name] {
			return &Error{Code: "missing_column", Text: fmt.Sprintf("into: the file has no column %q", shown(name))}
		}
	}
	return &Error{Code: "missing_column", Text: "the file has no columns to load"}
}

// match finds the columns of the table: by name, else by a name that differs in case only.
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
			missing = append(missing, fmt.Sprintf("%q", shown(w.Name)))
		case twice:
			return nil, &Error{Code: "columns", Text: fmt.Sprintf("the columns %q and %q of the file would both go into column %q of the table: say which one with --set into", shown(other), shown(w.Name), shown(found))}
		}
		taken[found] = w.Name
		names = append(names, found)
	}
	if len(missing) > 0 {
		return nil, &Error{Code: "columns", Text: fmt.Sprintf("table %s has no column %s; it has %s: say which column goes where with --set into.COLUMN_OF_THE_FILE=COLUMN_OF_THE_TABLE",
			table, list(missing), list(have))}
	}
	return names, nil
}
