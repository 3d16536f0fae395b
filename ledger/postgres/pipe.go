package postgres

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ledgerd/ledgerd/ledger"
)

// scanner reads the columns of the present row.
type scanner = func(dest ...any) error

// statement is SQL without {{…}}, its arguments, and a function for each row of its result; nil ignores the rows.
type statement struct {
	sql  string
	args []any
	row  func(scanner) error
}

// pipe sends statements in one round trip, so that BEGIN and COMMIT cost none of their own. The statements are unnamed,
// whatever mode the caller's pool has; batches of pgx would follow that mode.
type pipe struct {
	conn     *pgx.Conn
	prepared map[string]bool // SQL that is prepared once in this session
	// described keeps the types of parameters and columns of statements that do not change.
	// They are the same on every connection.
	described *sync.Map // SQL → *pgconn.StatementDescription; nil keeps nothing
}

// run runs the statements up to the first error.
func (p pipe) run(ctx context.Context, statements []statement) error {
	descriptions := make([]*pgconn.StatementDescription, len(statements))
	for i, st := range statements {
		var err error
		if descriptions[i], err = p.describe(ctx, st.sql); err != nil {
			return err
		}
	}
	pl := p.conn.PgConn().StartPipeline(ctx)
	for i, st := range statements {
		var b pgx.ExtendedQueryBuilder
		err := b.Build(p.conn.TypeMap(), descriptions[i], st.args)
		if err == nil {
			if p.prepared[st.sql] {
				pl.SendQueryStatement(descriptions[i], b.ParamValues, b.ParamFormats, b.ResultFormats)
			} else {
				pl.SendQueryParams(st.sql, b.ParamValues, descriptions[i].ParamOIDs, b.ParamFormats, b.ResultFormats)
			}
			if large(b.ParamValues) {
				err = pl.Flush() // the server works on it while the next one is built
			}
		}
		if err != nil {
			_ = pl.Close() // and the connection: the server may have begun
			return err
		}
	}
	if err := pl.Sync(); err != nil {
		return err
	}
	for _, st := range statements {
		if err := p.read(pl, st); err != nil {
			_ = pl.Close() // reads the rest, and returns the same error
			return err
		}
	}
	return pl.Close()
}

// large reports whether parameters have more than 32 KiB: the server works on them for longer than a write takes us.
func large(params [][]byte) bool {
	n := 0
	for _, p := range params {
		n += len(p)
	}
	return n > 32<<10
}

// read reads the result of a statement.
func (p pipe) read(pl *pgconn.Pipeline, st statement) error {
	results, err := pl.GetResults()
	if err != nil {
		return err
	}
	reader, ok := results.(*pgconn.ResultReader)
	if !ok {
		return errNoResult
	}
	rows := pgx.RowsFromResultReader(p.conn.TypeMap(), reader)
	if err := each(pgxRows{rows}, st.row); err != nil {
		return err
	}
	if st.sql == commit && rows.CommandTag().String() != commit {
		return pgx.ErrTxCommitRollback
	}
	return nil
}

// describe returns the types of a statement's parameters and columns. It prepares the statement if need be.
func (p pipe) describe(ctx context.Context, sql string) (*pgconn.StatementDescription, error) {
	if p.prepared[sql] {
		return p.conn.Prepare(ctx, sql, sql)
	}
	if p.described != nil {
		if d, ok := p.described.Load(sql); ok {
			return d.(*pgconn.StatementDescription), nil
		}
	}
	d, err := p.conn.PgConn().Prepare(ctx, "", sql, nil)
	if err == nil && p.described != nil {
		p.described.Store(sql, d)
	}
	return d, err
}

// each calls row for each of the rows, and closes them.
func each(rows ledger.Rows, row func(scanner) error) error {
	for rows.Next() {
		if row == nil {
			continue
		}
		if err := row(rows.Scan); err != nil {
			_ = rows.Close()
			return err
		}
	}
	if err := rows.Err(); err != nil {
		_ = rows.Close()
		return err
	}
	return rows.Close()
}

var errNoResult = errors.New("postgres: a statement without a result")
