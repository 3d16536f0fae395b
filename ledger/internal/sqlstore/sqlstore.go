// Package sqlstore holds what the stores in SQL databases do alike, off the hot path: the methods of
// ledger.Store and ledger.Tx whose statements differ in no more than the dialect. A store embeds
// [Store], and its transaction [Tx]; a claim, a finish and an insert are each store's own.
//
// Statements are written as Postgres takes them, with {{S}} for the schema, {{NOW}} for the database's
// clock, and {{BY index}} behind a table that is to be read by that index. Postgres's planner finds it
// by itself; SQLite is told. {{LEASED}} stands for the rows of the backlog that are leased, with the columns that they
// have on SQLite; {{READY}}, {{FILED}} and {{RUNNING}} for the conditions of rows that are ready, that wait under a
// limit, and that are leased under one. [ForSQLite] makes the statement that SQLite takes.
package sqlstore

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger/internal/code"
)

// Session runs statements one after the other.
type Session interface {
	// Query runs a statement, reads each row of its result into dest and calls each. NULL is the zero
	// value, and times are in UTC.
	Query(statement string, args, dest []any, each func() error) error
	// Later is Query that may wait until the next Query, or the end of the transaction.
	Later(statement string, args, dest []any, each func() error) error
}

// DB is a database that keeps a ledger.
type DB interface {
	// Read runs statements that change nothing; fn may be called again.
	Read(ctx context.Context, fn func(Session) error) error
	// Write runs statements that may commit one by one; fn may be called again.
	Write(ctx context.Context, fn func(Session) error) error
}

// Store are methods of ledger.Store.
type Store struct{ db DB }

// New is the Store of a database.
func New(db DB) Store { return Store{db} }

// Tx are methods of ledger.Tx.
type Tx struct {
	in  Session
	now func() time.Time
}

// NewTx is the Tx of a session in a transaction, with its clock.
func NewTx(in Session, now func() time.Time) Tx { return Tx{in, now} }

// exec runs a statement and ignores its result, except for an error.
func exec(in Session, statement string, args ...any) error {
	return in.Later(statement, args, nil, nil)
}

// row reads the only row of a result; some reports whether there was one.
func row(in Session, statement string, args []any, dest ...any) (some bool, err error) {
	err = in.Query(statement, args, dest, func() error { some = true; return nil })
	return some, err
}

// list collects what value makes of each row that was read into dest. Nothing is not nil, as in memory.
func list[T any](in Session, statement string, args, dest []any, value func() (T, error)) ([]T, error) {
	all := []T{}
	err := in.Query(statement, args, dest, func() error {
		v, err := value()
		all = append(all, v)
		return err
	})
	return all, err
}

// read is list in a Read of its own.
func read[T any](ctx context.Context, s Store, fn func(Session) (T, error)) (out T, err error) {
	err = s.db.Read(ctx, func(in Session) (err error) {
		out, err = fn(in)
		return err
	})
	return out, err
}

// is makes a function of a place that is read into.
func is[T any](place *T) func() (T, error) {
	return func() (T, error) { return *place, nil }
}

var (
	casts    = regexp.MustCompile(`::\w+(\[\])?`)
	rowLocks = regexp.MustCompile(` FOR (UPDATE|SHARE)( OF \w+)?( SKIP LOCKED)?`)
	lists    = regexp.MustCompile(`= ANY\((\$\d+)\)`)
	hints    = regexp.MustCompile(`\{\{BY (\w+)\}\}`)
	words    = strings.NewReplacer("{{LEASED}}", "(SELECT * FROM ledger_backlog INDEXED BY ledger_backlog_leased WHERE state = "+code.Leased+")",
		"{{READY}}", "state = "+code.Ready, "{{FILED}}", "limit_key IS NOT NULL AND lock_id IS NULL",
		"{{RUNNING}}", "limit_key IS NOT NULL AND lock_id IS NOT NULL", "{{S}}.", "", "least(", "min(", "greatest(", "max(", "$", "?")
)

// ForSQLite is a statement as SQLite takes it: without schema, casts and locks of rows (who writes has the
// whole file locked), and with lists as JSON. It leaves {{NOW}}.
func ForSQLite(statement string) string {
	s := rowLocks.ReplaceAllString(casts.ReplaceAllString(statement, ""), "")
	s = lists.ReplaceAllString(s, "IN (SELECT value FROM json_each($1))")
	return words.Replace(hints.ReplaceAllString(s, "INDEXED BY $1"))
}

// ForPostgres is a statement without what is for SQLite only. It leaves {{S}} and {{NOW}}.
func ForPostgres(statement string) string { return hints.ReplaceAllString(statement, "") }

// JSON is a value as a column of text keeps it; "" is the zero one.
func JSON[T comparable](v T) string {
	var zero T
	if v == zero {
		return ""
	}
	return document(v)
}

// document is a value of ours as JSON.
func document(v any) string {
	b, err := json.Marshal(v)
	if err != nil { // they have no values that JSON has not
		panic("sqlstore: " + err.Error())
	}
	return string(b)
}

// parse reads what a column of JSON keeps; "" is the zero value.
func parse(text string, into any) error {
	if text == "" {
		return nil
	}
	return json.Unmarshal([]byte(text), into)
}
