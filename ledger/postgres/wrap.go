package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ledgerd/ledgerd/ledger"
)

// Querier is a pgx.Tx, or a *pgx.Conn in which the caller has begun a transaction.
type Querier interface {
	Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, query string, args ...any) (pgx.Rows, error)
}

// Wrap makes a Conn of the caller's transaction. It must be in the database of the ledger.
func Wrap(q Querier) ledger.Conn { return pgxConn{q: q} }

// SQLQuerier is a *sql.Tx, or a *sql.Conn in which the caller has begun a transaction, over pgx's driver for
// database/sql (github.com/jackc/pgx/v5/stdlib).
type SQLQuerier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// WrapSQL is Wrap for database/sql. Over another driver than pgx's, every call fails with an error that names it.
func WrapSQL(q SQLQuerier) ledger.Conn { return sqlConn{q: q} }

const dialect = "postgres"

var (
	errOtherDriver = fmt.Errorf("%w: postgres.WrapSQL: this handle does not use pgx's driver for database/sql "+
		"(github.com/jackc/pgx/v5/stdlib)", ledger.ErrInvalid)
	errNoTx = &ledger.InvalidError{Field: "tx", Reason: "is a pool, or a connection outside of a transaction",
		Hint: "this needs an open transaction of the caller's"}
)

// callers is a Conn that Wrap or WrapSQL has made.
type callers interface {
	ledger.Conn
	// inTx returns the Conn for one call of the ledger: its statements fail outside of a transaction in the ledger's
	// database.
	inTx(g *guest) ledger.Conn
	none() bool // the caller gave nil
}

type pgxConn struct {
	q  Querier
	in *guest // nil outside of calls of the ledger
}

func (pgxConn) Dialect() string { return dialect }

func (c pgxConn) inTx(g *guest) ledger.Conn { return pgxConn{c.q, g} }

func (c pgxConn) none() bool { return isNil(c.q) }

func (c pgxConn) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	p := &probe{in: c.in}
	tag, err := c.q.Exec(ctx, query, prefixed(p, args)...)
	return tag.RowsAffected(), cmp.Or(p.refused, err)
}

func (c pgxConn) Query(ctx context.Context, query string, args ...any) (ledger.Rows, error) {
	p := &probe{in: c.in}
	rows, err := c.q.Query(ctx, query, prefixed(p, args)...)
	if err != nil {
		return nil, cmp.Or(p.refused, err)
	}
	return pgxRows{rows}, nil
}

// pgxRows are pgx.Rows with the Close of ledger.Rows.
type pgxRows struct{ pgx.Rows }

func (r pgxRows) Close() error {
	r.Rows.Close()
	return r.Err()
}

type sqlConn struct {
	q  SQLQuerier
	in *guest
}

func (sqlConn) Dialect() string { return dialect }

func (c sqlConn) inTx(g *guest) ledger.Conn { return sqlConn{c.q, g} }

func (c sqlConn) none() bool { return isNil(c.q) }

// isNil reports whether a handle of the caller is nil, or a pointer that is.
func isNil(q any) bool {
	v := reflect.ValueOf(q)
	return q == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

func (c sqlConn) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	p := &probe{in: c.in}
	res, err := c.q.ExecContext(ctx, query, prefixed(p, args)...)
	if err != nil {
		return 0, p.explain(ctx, err)
	}
	return res.RowsAffected()
}

func (c sqlConn) Query(ctx context.Context, query string, args ...any) (ledger.Rows, error) {
	p := &probe{in: c.in}
	rows, err := c.q.QueryContext(ctx, query, prefixed(p, args)...)
	if err != nil {
		return nil, p.explain(ctx, err)
	}
	return rows, nil
}

// prefixed puts before the arguments of a statement what pgx takes for options: that the statement is unnamed, also on
// connections of the caller, and the probe.
func prefixed(p *probe, args []any) []any {
	return append([]any{pgx.QueryExecModeCacheDescribe, p}, args...)
}

// probe is an argument that only pgx understands. Through it we learn that pgx runs the statement, and in which
// session.
type probe struct {
	in      *guest
	seen    bool
	refused error // why the statement was not run
}

// RewriteQuery implements pgx.QueryRewriter; it changes nothing.
func (p *probe) RewriteQuery(ctx context.Context, c *pgx.Conn, query string, args []any) (string, []any, error) {
	p.seen = true
	if p.in != nil {
		p.refused = p.in.check(ctx, c)
	}
	return query, args, p.refused
}

// explain returns errOtherDriver for an error of a handle that is not pgx's, and other errors as they are.
func (p *probe) explain(ctx context.Context, err error) error {
	if p.refused != nil {
		return p.refused
	}
	if p.seen || ctx.Err() != nil || errors.Is(err, sql.ErrTxDone) || errors.Is(err, sql.ErrConnDone) ||
		errors.Is(err, driver.ErrBadConn) {
		return err
	}
	return errOtherDriver
}
