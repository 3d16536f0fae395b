package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ledgerd/ledgerd/ledger"
)

// Querier is *pgxpool.Pool, *pgx.Conn or pgx.Tx.
type Querier interface {
	Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, query string, args ...any) (pgx.Rows, error)
}

// Wrap makes a Conn of the caller's pgx pool or transaction.
func Wrap(q Querier) ledger.Conn { return pgxConn{q: q} }

// SQLQuerier is *sql.DB, *sql.Tx or *sql.Conn over pgx's driver for database/sql
// (github.com/jackc/pgx/v5/stdlib).
type SQLQuerier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// WrapSQL makes a Conn of the caller's database/sql handle or transaction. Over another driver
// than pgx's, every call fails with an error that names it.
func WrapSQL(q SQLQuerier) ledger.Conn { return sqlConn{q: q} }

const dialect = "postgres"

var (
	errOtherDriver = fmt.Errorf("%w: postgres.WrapSQL: this handle does not use pgx's driver for database/sql "+
		"(github.com/jackc/pgx/v5/stdlib)", ledger.ErrInvalid)
	errNoTx = fmt.Errorf("%w: this needs an open transaction of the caller's, not a pool or a connection outside of one",
		ledger.ErrInvalid)
)

// callers is a Conn of this package.
type callers interface {
	ledger.Conn
	inTx() ledger.Conn // the same, with statements that fail outside of a transaction
}

type pgxConn struct {
	q      Querier
	mustTx bool
}

func (pgxConn) Dialect() string { return dialect }

func (c pgxConn) inTx() ledger.Conn { return pgxConn{c.q, true} }

func (c pgxConn) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	tag, err := c.q.Exec(ctx, query, prefixed(&probe{mustTx: c.mustTx}, args)...)
	return tag.RowsAffected(), err
}

func (c pgxConn) Query(ctx context.Context, query string, args ...any) (ledger.Rows, error) {
	rows, err := c.q.Query(ctx, query, prefixed(&probe{mustTx: c.mustTx}, args)...)
	if err != nil {
		return nil, err
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
	q      SQLQuerier
	mustTx bool
}

func (sqlConn) Dialect() string { return dialect }

func (c sqlConn) inTx() ledger.Conn { return sqlConn{c.q, true} }

func (c sqlConn) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	p := &probe{mustTx: c.mustTx}
	res, err := c.q.ExecContext(ctx, query, prefixed(p, args)...)
	if err != nil {
		return 0, p.explain(ctx, err)
	}
	return res.RowsAffected()
}

func (c sqlConn) Query(ctx context.Context, query string, args ...any) (ledger.Rows, error) {
	p := &probe{mustTx: c.mustTx}
	rows, err := c.q.QueryContext(ctx, query, prefixed(p, args)...)
	if err != nil {
		return nil, p.explain(ctx, err)
	}
	return rows, nil
}

// prefixed puts what pgx must be told before the arguments of a statement: unnamed statements,
// on connections of the caller's, too.
func prefixed(p *probe, args []any) []any {
	return append([]any{pgx.QueryExecModeCacheDescribe, p}, args...)
}

// probe is an argument that only pgx understands. It learns that pgx runs the statement, and
// whether in a transaction.
type probe struct{ mustTx, seen bool }

// RewriteQuery implements pgx.QueryRewriter; it changes nothing.
func (p *probe) RewriteQuery(_ context.Context, c *pgx.Conn, query string, args []any) (string, []any, error) {
	p.seen = true
	if p.mustTx && c.PgConn().TxStatus() == 'I' {
		return "", nil, errNoTx
	}
	return query, args, nil
}

// explain explains the error of a handle that may not be pgx's.
func (p *probe) explain(ctx context.Context, err error) error {
	if p.seen || ctx.Err() != nil || errors.Is(err, sql.ErrTxDone) || errors.Is(err, sql.ErrConnDone) ||
		errors.Is(err, driver.ErrBadConn) {
		return err
	}
	return errOtherDriver
}
