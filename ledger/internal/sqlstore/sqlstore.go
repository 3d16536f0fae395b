// Package sqlstore holds the methods of ledger.Store and ledger.Tx, off the hot path, that the stores in SQL databases
// share: their statements differ only in the dialect. A store embeds [Store], and its transaction [Tx]. Each store has
// its own claim, finish and insert.
//
// Statements are written for Postgres, with {{S}} for the schema, {{NOW}} for the database's clock, and {{BY index}}
// behind a table that SQLite has to read by that index; Postgres chooses its index itself. {{LEASED}} stands for the
// leased rows of the backlog, with the columns that they have on SQLite, {{HOLDING}} for the condition that the agent p
// holds some: Postgres looks each agent up, SQLite has no index for that and reads all holders once. {{READY}},
// {{FILED}} and {{RUNNING}} are the conditions of rows that are ready, that wait under a limit, and that are leased
// under one. [ForSQLite] returns the statement for SQLite.
package sqlstore

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/internal/lazyregexp"
	"github.com/ledgerd/ledgerd/ledger/internal/code"
)

// Session runs statements one after the other.
type Session interface {
	// Query runs a statement, reads each row of its result into dest and calls each. NULL becomes the zero value, and
	// times are in UTC.
	Query(statement string, args, dest []any, each func() error) error
	// Later is Query that may be delayed until the next Query, or the end of the transaction.
	Later(statement string, args, dest []any, each func() error) error
}

// DB is a database that keeps a ledger.
type DB interface {
	// Read runs statements that change nothing; fn may be called again.
	Read(ctx context.Context, fn func(Session) error) error
	// Soon is Read for a short read that workers wait for: no other read holds it up.
	Soon(ctx context.Context, fn func(Session) error) error
	// Write runs statements that may commit one by one; fn may be called again.
	Write(ctx context.Context, fn func(Session) error) error
}

// Store implements methods of ledger.Store.
type Store struct{ db DB }

// New returns the Store of a database.
func New(db DB) Store { return Store{db} }

// Tx implements methods of ledger.Tx.
type Tx struct {
	in  Session
	now func() time.Time
}

// NewTx returns the Tx of a session in a transaction, with its clock.
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

// list collects the results of value for each row that was read into dest. An empty list is not nil, as in memory.
func list[T any](in Session, statement string, args, dest []any, value func() (T, error)) ([]T, error) {
	all := []T{}
	err := in.Query(statement, args, dest, func() error {
		v, err := value()
		all = append(all, v)
		return err
	})
	return all, err
}

// read runs fn in a Read of its own.
func read[T any](ctx context.Context, s Store, fn func(Session) (T, error)) (out T, err error) {
	err = s.db.Read(ctx, func(in Session) (err error) {
		out, err = fn(in)
		return err
	})
	return out, err
}

// soon runs fn in a Soon of its own.
func soon[T any](ctx context.Context, s Store, fn func(Session) (T, error)) (out T, err error) {
	err = s.db.Soon(ctx, func(in Session) (err error) {
		out, err = fn(in)
		return err
	})
	return out, err
}

// is returns a function that returns the value of a destination.
func is[T any](place *T) func() (T, error) {
	return func() (T, error) { return *place, nil }
}

var (
	casts    = lazyregexp.New(`::\w+(\[\])?`)
	rowLocks = lazyregexp.New(` FOR (UPDATE|SHARE)( OF \w+)?( SKIP LOCKED)?`)
	lists    = lazyregexp.New(`= ANY\((\$\d+)\)`)
	hints    = lazyregexp.New(`\{\{BY (\w+)\}\}`)
	words    = strings.NewReplacer("{{LEASED}}", "(SELECT * FROM ledger_backlog INDEXED BY ledger_backlog_leased WHERE state = "+code.Leased+")",
		"{{HOLDING}}", "p.agent IN (SELECT locked_by FROM ledger_backlog INDEXED BY ledger_backlog_leased WHERE state = "+code.Leased+")",
		"{{READY}}", "state = "+code.Ready, "{{FILED}}", "limit_key IS NOT NULL AND lock_id IS NULL",
		"{{RUNNING}}", "limit_key IS NOT NULL AND lock_id IS NOT NULL", "{{S}}.", "", "least(", "min(", "greatest(", "max(", "$", "?")
)

// ForSQLite returns a statement for SQLite: without schema, casts and row locks, since a writer has locked the whole
// file, and with lists as JSON. It leaves {{NOW}}.
func ForSQLite(statement string) string {
	s := rowLocks().ReplaceAllString(casts().ReplaceAllString(statement, ""), "")
	s = lists().ReplaceAllString(s, "IN (SELECT value FROM json_each($1))")
	return words.Replace(hints().ReplaceAllString(s, "INDEXED BY $1"))
}

// ForPostgres returns a statement without the parts for SQLite. It leaves {{S}} and {{NOW}}.
func ForPostgres(statement string) string { return hints().ReplaceAllString(statement, "") }

// JSON returns a value for a column of text; "" is the zero value.
func JSON[T comparable](v T) string {
	var zero T
	if v == zero {
		return ""
	}
	return document(v)
}

// document returns one of our values as JSON.
func document(v any) string {
	b, err := json.Marshal(v)
	if err != nil { // our values can always be encoded
		panic("sqlstore: " + err.Error())
	}
	return string(b)
}

// parse decodes the text of a column of JSON; "" is the zero value.
func parse(text string, into any) error {
	if text == "" {
		return nil
	}
	return json.Unmarshal([]byte(text), into)
}
