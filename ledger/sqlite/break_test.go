package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/ledgerd/ledgerd/internal/must"
)

// Faults are the faults that a Breaker can cause: errors of SQLite at any statement of the writing connection. "undone"
// is the full disk on which SQLite rolls the whole transaction back.
var Faults = []string{"busy", "full", "full, undone"}

// Breaker makes statements of a store fail.
type Breaker struct {
	busy, full error

	mu    sync.Mutex
	fault string
	left  int // statements until the fault; 0: no fault
}

// NewBreaker gets the errors by making SQLite return them.
func NewBreaker(t testing.TB) *Breaker {
	t.Helper()
	path := filepath.Join(t.TempDir(), "small.db")
	var hs [2]*handle
	for i := range hs {
		h, err := open(t.Context(), path)
		must.OK(t, err)
		defer h.close()
		hs[i] = h
	}
	exec := func(h *handle, query string) error {
		_, err := h.exec(t.Context(), query, nil)
		return err
	}
	err := errors.Join(exec(hs[0], "CREATE TABLE t (v BLOB)"), exec(hs[0], "PRAGMA max_page_count = 10"))
	b := &Breaker{full: exec(hs[0], "INSERT INTO t VALUES (zeroblob(1000000))")}
	err = errors.Join(err, exec(hs[0], "BEGIN IMMEDIATE"))
	b.busy = exec(hs[1], "BEGIN IMMEDIATE")
	if resultCode(b.full) != sqlite3.SQLITE_FULL || !busy(b.busy) {
		t.Fatal(err, b.full, b.busy)
	}
	return b
}

// Attach lets Break act on a store. The store must be new: nothing has been written with it.
func (b *Breaker) Attach(s *Store) {
	h := s.w.h
	for _, stmt := range h.stmts {
		stmt.Close()
	}
	clear(h.stmts)
	h.conn = breakable{h.conn, b}
}

// Break makes the k-th statement from now on fail, until mend is called.
func (b *Breaker) Break(fault string, k int) (mend func() (landed bool)) {
	set := func(fault string, left int) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.fault, b.left = fault, left
	}
	set(fault, k)
	return func() bool {
		set("", 0)
		return false
	}
}

// strike returns the fault with which a statement must fail, or "".
func (b *Breaker) strike(query string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left == 0 || strings.HasPrefix(query, "ROLLBACK") { // a rollback needs neither lock nor room
		return ""
	}
	if b.left--; b.left > 0 {
		return ""
	}
	return b.fault
}

type breakable struct {
	driver.Conn
	b *Breaker
}

func (c breakable) Prepare(query string) (driver.Stmt, error) {
	s, err := c.Conn.Prepare(query)
	return breakableStmt{s, query, c}, err
}

type breakableStmt struct {
	driver.Stmt
	query string
	on    breakable
}

func (s breakableStmt) fails(ctx context.Context) error {
	switch s.on.b.strike(s.query) {
	case "busy":
		return s.on.b.busy
	case "full":
		return s.on.b.full
	case "full, undone":
		if undo, err := s.on.Conn.Prepare("ROLLBACK"); err == nil { // refused where no transaction is open
			_, _ = undo.(driver.StmtExecContext).ExecContext(ctx, nil)
			undo.Close()
		}
		return s.on.b.full
	}
	return nil
}

func (s breakableStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.fails(ctx); err != nil {
		return nil, err
	}
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

func (s breakableStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := s.fails(ctx); err != nil {
		return nil, err
	}
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

// WhatIsLeft returns what a failed migration has left of a ledger of an older schema.
func WhatIsLeft(t testing.TB, path string, before int, copied string) string {
	f, err := locate(path, true)
	must.OK(t, err)
	return hintAfter(t.Context(), f, state{have: before}, copied)
}
