package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/ledgerd/ledgerd/ledger"
)

// Querier is *sql.DB, *sql.Tx or *sql.Conn.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Wrap makes a Conn from a handle of the caller on the file that holds the ledger, for AddTx and FinishTx: a *sql.Tx,
// or a *sql.Conn on which the caller has begun a transaction. A handle of another driver than modernc.org/sqlite is
// refused.
//
// The ledger's first statement takes the file's write lock. Open the handle with the DSN
// "file:PATH?_txlock=immediate&_pragma=busy_timeout(5000)": then each transaction takes the lock when it begins, and
// waits for it for up to 5 s. Without busy_timeout it fails at once while another connection has the lock. Without
// _txlock it also fails when it has read and another connection has written since. Such an error is
// ledger.ErrUnavailable; repeat the whole transaction. Until a transaction ends, every other write to the ledger waits,
// also those of this program.
func Wrap(q Querier) ledger.Conn { return &wrapped{Querier: q} }

type wrapped struct{ Querier }

func (w *wrapped) Dialect() string { return "sqlite" }

func (w *wrapped) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	r, err := w.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

func (w *wrapped) Query(ctx context.Context, query string, args ...any) (ledger.Rows, error) {
	return w.QueryContext(ctx, query, args...)
}

// inside runs fn in a transaction of the caller.
func (s *Store) inside(ctx context.Context, conn ledger.Conn, fn func(*tx) error) error {
	w, ok := conn.(*wrapped)
	if !ok {
		return &ledger.InvalidError{Field: "tx", Reason: fmt.Sprintf("is one of %s, not of sqlite.Wrap", conn.Dialect())}
	}
	if v := reflect.ValueOf(w.Querier); w.Querier == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return &ledger.InvalidError{Field: "tx", Reason: "is nil", Hint: "begin one first"}
	}
	if _, pool := w.Querier.(*sql.DB); pool {
		return &ledger.InvalidError{Field: "tx", Reason: "is a pool", Hint: "what commits together needs a transaction " +
			"(*sql.Tx)"}
	}
	in := &callers{q: w.Querier, ctx: ctx, stmts: map[string]*sql.Stmt{}}
	defer in.close()
	if err := s.enter(in); err != nil {
		return explain(s.file.name, err)
	}
	x := newTx(s)
	x.session, x.now = in, s.clock()
	return explain(s.file.name, fn(x))
}

// begun reports whether the caller has begun a transaction. SQLite refuses BEGIN within a transaction.
func (c *callers) begun() (bool, error) {
	if _, tx := c.q.(*sql.Tx); tx {
		return true, nil
	}
	_, err := c.q.ExecContext(c.ctx, "BEGIN")
	switch {
	case err == nil:
		_, err = c.q.ExecContext(context.WithoutCancel(c.ctx), "ROLLBACK")
		return false, err
	case resultCode(err) == sqlite3.SQLITE_ERROR:
		return true, nil
	}
	return false, err
}

// enter checks the driver of the transaction and that it is on this ledger, and takes the write lock.
func (s *Store) enter(in *callers) error {
	switch ours, err := usesOurDriver(in.ctx, in.q); {
	case errors.Is(err, sql.ErrTxDone):
		return &ledger.Error{Kind: ledger.ErrInvalid, Message: "tx: has ended: " + err.Error(), Hint: "begin another",
			Err: err}
	case err != nil:
		return err
	case !ours:
		return &ledger.InvalidError{Field: "tx", Reason: "is of another driver",
			Hint: "open its database with modernc.org/sqlite (two SQLite libraries in one process damage the file)"}
	}
	if begun, err := in.begun(); err != nil {
		return err
	} else if !begun {
		return &ledger.InvalidError{Field: "tx", Reason: "is not an open transaction", Hint: "begin one first"}
	}
	_, err := in.exec(`DELETE FROM ledger_meta WHERE 0`)
	if resultCode(err) == sqlite3.SQLITE_BUSY_SNAPSHOT {
		return &ledger.Error{Kind: ledger.ErrUnavailable,
			Message: s.file.name + ": somebody has written since this transaction read", Err: err,
			Hint: "call the ledger before reading, or begin with BEGIN IMMEDIATE; then run the whole transaction again"}
	}
	other := resultCode(err) == sqlite3.SQLITE_ERROR // no such table
	if err == nil {
		err = in.query(`SELECT v FROM ledger_meta WHERE k = 'ledger_id'`, func(r row) error {
			other = r.text(0) != s.id
			return nil
		})
	}
	if other {
		return &ledger.InvalidError{Field: "tx", Reason: fmt.Sprintf("is not on the file of this ledger, %s", s.file.name)}
	}
	return err
}

// callers is the session in a transaction of the caller.
type callers struct {
	q     Querier
	ctx   context.Context
	stmts map[string]*sql.Stmt
}

// usesOurDriver reports whether a connection uses this package's driver. It recognizes the driver by the type of the
// error of an invalid statement. The transaction is not affected. An error means that the statement was not sent to any
// driver.
func usesOurDriver(ctx context.Context, q Querier) (bool, error) {
	rows, err := q.QueryContext(ctx, "SELECT nothing FROM ledger_no_such_table")
	if err == nil {
		rows.Close()
	}
	if errors.Is(err, sql.ErrTxDone) || errors.Is(err, sql.ErrConnDone) || ctx.Err() != nil {
		return false, err
	}
	var e *sqlite.Error
	return errors.As(err, &e), nil
}

// prepare prepares a statement and keeps it for the rest of the call.
func (c *callers) prepare(query string) (*sql.Stmt, error) {
	if s, ok := c.stmts[query]; ok {
		return s, nil
	}
	q, ok := c.q.(interface {
		PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
	})
	if !ok {
		return nil, &ledger.InvalidError{Field: "tx", Reason: fmt.Sprintf("is a %T", c.q),
			Hint: "it must be a *sql.Tx or a *sql.Conn"}
	}
	s, err := q.PrepareContext(c.ctx, query)
	if err == nil {
		c.stmts[query] = s
	}
	return s, err
}

func (c *callers) close() {
	for _, s := range c.stmts {
		s.Close()
	}
}

func values(args []any) []any {
	list := make([]any, len(args))
	for i, a := range args {
		list[i] = value(a)
	}
	return list
}

func (c *callers) exec(query string, args ...any) (result, error) {
	s, err := c.prepare(query)
	if err != nil {
		return result{}, err
	}
	r, err := s.ExecContext(c.ctx, values(args)...)
	return resultOf(r, err)
}

func (c *callers) query(query string, each func(row) error, args ...any) error {
	s, err := c.prepare(query)
	if err != nil {
		return err
	}
	rows, err := s.QueryContext(c.ctx, values(args)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	r, into := make(row, len(columns)), make([]any, len(columns))
	for i := range r {
		into[i] = (*any)(&r[i])
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		if err := each(r); err != nil {
			return err
		}
	}
	return rows.Err()
}

var _ session = (*callers)(nil)
