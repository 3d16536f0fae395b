package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ledgerd/ledgerd/internal/pgcancel"
)

const (
	connectTimeout = 5 * time.Second
	closeTimeout   = 5 * time.Second
)

// postgres is the source of a query on Postgres: a connection in a transaction that can only read.
type postgres struct{ conn *pgx.Conn }

// Postgres connects to the database at a URL and prepares the query there, in a transaction that can only read.
func Postgres(ctx context.Context, url, file, text string) (*Query, error) {
	pool, err := pgxpool.ParseConfig(url) // it may be the URL of a ledger, with parameters of pools
	if err != nil {                       // err may quote the password
		return nil, &Error{File: file, Message: "--query-db: not a Postgres URL, such as postgres://user@host:5432/database"}
	}
	config := pool.ConnConfig
	config.ConnectTimeout = cmp.Or(config.ConnectTimeout, connectTimeout)
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "ledgerd-query"
	}
	config.RuntimeParams["client_encoding"] = "UTF8"    // even if the role or the database has another encoding
	config.DefaultQueryExecMode = pgx.QueryExecModeExec // works behind poolers as well
	path, hasPath := config.RuntimeParams["search_path"]
	delete(config.RuntimeParams, "search_path") // a pooler refuses it
	pgcancel.Use(config, connectTimeout)
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	p := &postgres{conn}
	_, err = conn.Exec(ctx, "BEGIN READ ONLY")
	if err == nil && hasPath { // in the transaction alone: the session may be another client's next
		_, err = conn.Exec(ctx, "SELECT set_config('search_path', $1, true)", path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrUnreachable, err), p.close())
	}
	return open(ctx, file, text, p)
}

func (p *postgres) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return p.conn.Close(ctx)
}

// describe prepares the query, so that the database reports its columns and its mistakes.
func (p *postgres) describe(ctx context.Context, text string) ([]Column, error) {
	d, err := p.conn.PgConn().Prepare(ctx, "", text, nil)
	if err != nil {
		return nil, positioned(text, err)
	}
	if len(d.ParamOIDs) > 0 {
		return nil, &Error{Message: "has parameters ($1 …); ledgerd cannot fill them in"}
	}
	columns := make([]Column, len(d.Fields))
	for i, f := range d.Fields {
		columns[i] = Column{f.Name, typeOf(f.DataTypeOID)}
	}
	return columns, nil
}

// typeOf returns the type of a column from its OID in Postgres.
func typeOf(oid uint32) Type {
	switch oid {
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID:
		return Integer
	case pgtype.Float4OID, pgtype.Float8OID, pgtype.NumericOID:
		return Number
	case pgtype.BoolOID:
		return Bool
	case pgtype.JSONOID, pgtype.JSONBOID:
		return JSON
	case pgtype.ByteaOID:
		return Bytes
	}
	return Text
}

// rows reads values in the text form, so that each type has one form, see cell.
func (p *postgres) rows(ctx context.Context, q *Query, row func(cells []any) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	rows, err := p.conn.Query(ctx, q.Text, pgx.QueryResultFormats{pgx.TextFormatCode})
	if err != nil {
		cancel()
		return positioned(q.Text, err)
	}
	defer rows.Close()
	defer cancel() // Close would read the rest of the result, however long it is
	cells := make([]any, len(q.Columns))
	for rows.Next() {
		for i, raw := range rows.RawValues() {
			if cells[i], err = p.cell(q.Columns[i].Type, rows.FieldDescriptions()[i].DataTypeOID, raw); err != nil {
				return err
			}
		}
		if !row(cells) {
			return nil
		}
	}
	return positioned(q.Text, rows.Err())
}

// cell parses the text form of a value.
func (p *postgres) cell(t Type, oid uint32, raw []byte) (any, error) {
	if raw == nil {
		return nil, nil
	}
	switch text := string(raw); t {
	case Integer:
		return strconv.ParseInt(text, 10, 64)
	case Number:
		if oid != pgtype.NumericOID {
			return strconv.ParseFloat(text, 64)
		}
		if strings.ContainsAny(text, "NI") { // NaN and Infinity are no numbers in JSON
			return text, nil
		}
		return Decimal(text), nil
	case Bool:
		return text == "t", nil
	case JSON:
		return Raw(text), nil
	case Bytes:
		return []byte(text), nil
	default:
		return text, nil
	}
}

// positioned returns Postgres's error with its line and column in the text of the query.
func positioned(text string, err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	e := &Error{Message: pg.Message, Hint: pg.Hint, Err: err}
	if pg.Position > 0 {
		e.Line, e.Column = At(text, int(pg.Position))
	}
	return e
}
