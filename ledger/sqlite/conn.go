package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
)

// session runs the store's statements: on a connection of the store, or in a transaction of the caller. One goroutine
// uses it at a time.
type session interface {
	exec(query string, args ...any) (result, error)
	// query calls each for every row. The row is valid only during the call.
	query(query string, each func(row) error, args ...any) error
}

type result struct {
	changes int64
	lastID  int64 // of the newest row that was inserted
}

// handle is a connection with its prepared statements. It calls the driver directly: database/sql would cost a tenth of
// the throughput.
type handle struct {
	conn  driver.Conn
	stmts map[string]driver.Stmt
	args  []driver.NamedValue
}

// maxPrepared is the most statements that a connection keeps prepared.
const maxPrepared = 200

func connect(ctx context.Context, c driver.Connector) (*handle, error) {
	conn, err := c.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &handle{conn: conn, stmts: map[string]driver.Stmt{}}, nil
}

func (h *handle) close() error {
	var errs []error
	for _, s := range h.stmts {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, h.conn.Close())...)
}

// with returns the session of one call. Its ctx interrupts statements.
func (h *handle) with(ctx context.Context) session { return bound{h, ctx} }

type bound struct {
	*handle
	ctx context.Context
}

func (b bound) exec(query string, args ...any) (result, error) {
	return b.handle.exec(b.ctx, query, args)
}

func (b bound) query(query string, each func(row) error, args ...any) error {
	return b.handle.query(b.ctx, query, each, args)
}

func (h *handle) prepare(query string) (driver.Stmt, error) {
	if s, ok := h.stmts[query]; ok {
		return s, nil
	}
	if len(h.stmts) == maxPrepared { // filters have endless forms
		for _, s := range h.stmts {
			s.Close()
		}
		clear(h.stmts)
	}
	s, err := h.conn.Prepare(query)
	if err != nil {
		return nil, err
	}
	h.stmts[query] = s
	return s, nil
}

// named returns the arguments in the form of the driver, valid until the next call.
func (h *handle) named(args []any) []driver.NamedValue {
	h.args = h.args[:0]
	for i, a := range args {
		h.args = append(h.args, driver.NamedValue{Ordinal: i + 1, Value: value(a)})
	}
	return h.args
}

func (h *handle) exec(ctx context.Context, query string, args []any) (result, error) {
	s, err := h.prepare(query)
	if err != nil {
		return result{}, err
	}
	r, err := s.(driver.StmtExecContext).ExecContext(ctx, h.named(args))
	return resultOf(r, err)
}

func resultOf(r driver.Result, err error) (out result, _ error) {
	if err != nil {
		return out, err
	}
	out.changes, _ = r.RowsAffected() // this driver's never fail
	out.lastID, _ = r.LastInsertId()
	return out, nil
}

func (h *handle) query(ctx context.Context, query string, each func(row) error, args []any) (err error) {
	s, err := h.prepare(query)
	if err != nil {
		return err
	}
	rows, err := s.(driver.StmtQueryContext).QueryContext(ctx, h.named(args))
	if err != nil {
		return err
	}
	defer func() {
		if e := rows.Close(); err == nil {
			err = e
		}
	}()
	r := make(row, len(rows.Columns()))
	for {
		switch err := rows.Next(r); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := each(r); err != nil {
			return err
		}
	}
}

// value returns an argument as the columns keep it: times in microseconds, tokens as bytes. Empty bytes, zero times and
// zero tokens are NULL.
func value(a any) driver.Value {
	switch v := a.(type) {
	case nil, int64, string:
		return v
	case exact:
		return v.Value
	case int:
		return int64(v)
	case int16:
		return int64(v)
	case bool:
		if v {
			return int64(1)
		}
		return int64(0)
	case []byte:
		if len(v) == 0 {
			return nil
		}
		return v
	case time.Time:
		if v.IsZero() {
			return nil
		}
		return v.UnixMicro()
	case uuid.UUID:
		if v == uuid.Nil {
			return nil
		}
		return v[:]
	}
	panic(fmt.Sprintf("sqlite: argument of type %T", a))
}

// null returns a value for a column in which the zero value is NULL.
func null[T comparable](v T) any {
	if v == *new(T) {
		return nil
	}
	return v
}

// blob is a parameter for bytes. Empty bytes must not become NULL, so they are passed as text and the statement casts
// them.
func blob(b []byte) any {
	if b != nil && len(b) == 0 {
		return ""
	}
	return b
}

// row is a row of a result. The tables are STRICT, so a value is of its column's type or NULL. NULL is the zero value.
type row []driver.Value

func (r row) int(i int) int64 {
	v, _ := r[i].(int64)
	return v
}

func (r row) bool(i int) bool { return r.int(i) != 0 }

func (r row) text(i int) string {
	v, _ := r[i].(string)
	return v
}

func (r row) bytes(i int) []byte {
	v, ok := r[i].([]byte)
	if ok && v == nil { // the driver's form of bytes that are empty
		v = []byte{}
	}
	return v
}

func (r row) time(i int) time.Time {
	if v, ok := r[i].(int64); ok {
		return time.UnixMicro(v).UTC()
	}
	return time.Time{}
}

func (r row) uuid(i int) uuid.UUID {
	u, _ := uuid.FromBytes(r.bytes(i)) // NULL gives the zero one
	return u
}
