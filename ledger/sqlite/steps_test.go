package sqlite

import (
	"context"
	"database/sql/driver"
	"reflect"
	"slices"
	"sync"
	"testing"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/ledgerd/ledgerd/internal/must"
)

// measured is an executed statement with its cost.
type measured struct {
	query string
	args  []any
	steps int // of SQLite's virtual machine: a few dozen for each row that it reads
}

// meter collects the statements that the connections of a store execute.
type meter struct {
	mu  sync.Mutex
	ran []measured
}

// metered is a connection of the store that measures its statements.
type metered struct {
	driver.Conn
	m *meter
}

func (c metered) Prepare(query string) (driver.Stmt, error) {
	s, err := c.Conn.Prepare(query)
	if err != nil {
		return nil, err
	}
	return meteredStmt{s, query, c.m}, nil
}

type meteredStmt struct {
	driver.Stmt
	query string
	m     *meter
}

// done reads and resets the counters of the statement. The driver does not give access to them, but private fields of
// its statement hold the arguments of SQLite's function.
func (s meteredStmt) done(arguments []driver.NamedValue) {
	stmt := reflect.ValueOf(s.Stmt).Elem()
	handle, thread := stmt.FieldByName("pstmt").Uint(), stmt.FieldByName("c").Elem().FieldByName("tls")
	if handle == 0 {
		return
	}
	status := reflect.ValueOf(sqlite3.Xsqlite3_stmt_status)
	args := []reflect.Value{reflect.NewAt(thread.Type().Elem(), thread.UnsafePointer()), reflect.ValueOf(uintptr(handle)),
		reflect.ValueOf(int32(sqlite3.SQLITE_STMTSTATUS_VM_STEP)), reflect.ValueOf(int32(1))}
	values := make([]any, len(arguments))
	for i, a := range arguments {
		values[i] = a.Value
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.m.ran = append(s.m.ran, measured{s.query, values, int(status.Call(args)[0].Int())})
}

func (s meteredStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	defer s.done(args)
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

func (s meteredStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
	return meteredRows{rows, s, slices.Clone(args)}, err
}

type meteredRows struct {
	driver.Rows
	stmt meteredStmt
	args []driver.NamedValue // a copy: the store uses the slice again
}

func (r meteredRows) Close() error {
	defer r.stmt.done(r.args)
	return r.Rows.Close()
}

// measure makes all connections of the store measure their statements. ran returns the statements that they executed
// since its last call.
func measure(t *testing.T, s *Store) (ran func() []measured) {
	t.Helper()
	m := &meter{}
	for _, p := range []*readPool{s.readers, s.probes} {
		for range cap(p.free) {
			<-p.free
			h, err := open(t.Context(), s.file.uri("busy_timeout(5000)", "query_only(1)"))
			must.OK(t, err)
			h.conn = metered{h.conn, m}
			p.free <- h
		}
	}
	s.w.h.conn = metered{s.w.h.conn, m}
	for query, stmt := range s.w.h.stmts { // prepared before
		s.w.h.stmts[query] = meteredStmt{stmt, query, m}
	}
	return func() []measured {
		m.mu.Lock()
		defer m.mu.Unlock()
		defer func() { m.ran = nil }()
		return slices.Clone(m.ran)
	}
}
