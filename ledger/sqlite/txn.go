package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/sqltx"
	"github.com/ledgerd/ledgerd/ledger/txn"
)

// DB runs transactions on the caller's own handle. That must use the driver modernc.org/sqlite;
// the ledger need not be in that file. Each begins with BEGIN IMMEDIATE, also if the DSN has another mode, and
// waits for the file's write lock as the ledger itself does, with any busy_timeout, so that no caller
// starves. So transactions exclude each other, also those that only read.
//
// Until a transaction ends, every other write to the file waits. A call of the ledger in that file
// that writes is refused with the ctx of the transaction: use AddTx and FinishTx.
func DB(db *sql.DB) txn.DB[*sql.Tx] {
	return &database{pool: sqltx.Pool{DB: db}, turn: make(chan struct{}, 1)}
}

type database struct {
	pool sqltx.Pool
	turn chan struct{} // holds one: who asks for the write lock; the others of this process queue up here

	mu   sync.Mutex
	file *opened // nil until the first transaction
}

// opened is what the handle has open.
type opened struct {
	info    os.FileInfo // nil if it is no file
	timeout int64       // busy_timeout, in milliseconds
}

func (d *database) Pool() any { return d.pool.DB }

// Begin begins as database/sql must have it, and begins again with the write lock.
func (d *database) Begin(ctx context.Context, _ txn.Isolation) (*sql.Tx, error) {
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("sqlite: waiting for the write lock: %w", ctx.Err())
	}
	tx, err := d.pool.Begin(ctx, sql.TxOptions{ReadOnly: true}) // to this driver: a plain BEGIN, in spite of _txlock
	if err != nil {
		return nil, err
	}
	if err := d.lock(ctx, tx); err != nil {
		d.Rollback(tx)
		return nil, err
	}
	return tx, nil
}

// lock exchanges the transaction that tx has begun for one with the write lock.
func (d *database) lock(ctx context.Context, tx *sql.Tx) error {
	f, err := d.learn(ctx, tx)
	if err != nil {
		return err
	}
	if within(ctx, f.info) {
		return errors.New("sqlite: this context is inside a transaction on the same file, which was begun on another " +
			"handle and is waited for\n  use one handle and one txn.Runner for the file")
	}
	restore := fmt.Sprintf("PRAGMA busy_timeout = %d", f.timeout)
	begin := "BEGIN IMMEDIATE; " + restore
	if _, err = tx.ExecContext(ctx, "ROLLBACK; PRAGMA busy_timeout = 0; "+begin); err == nil {
		return nil
	}
	defer func() {
		if err != nil {
			_, _ = tx.ExecContext(context.WithoutCancel(ctx), restore)
		}
	}()
	p := newPatience(commits(ctx, tx))
	for busy(err) {
		p.pause()
		if ctx.Err() != nil {
			return waited(ctx)
		}
		_, err = tx.ExecContext(ctx, begin)
	}
	return err
}

func waited(ctx context.Context) error {
	return fmt.Errorf("sqlite: waiting for the write lock: %w", ctx.Err())
}

// commits tells whether others have committed since it was called before.
func commits(ctx context.Context, tx *sql.Tx) func() bool {
	version := int64(-1)
	return func() bool {
		before := version
		err := tx.QueryRowContext(ctx, "PRAGMA data_version").Scan(&version)
		return err == nil && version != before
	}
}

// learn asks once what the handle has open.
func (d *database) learn(ctx context.Context, tx *sql.Tx) (*opened, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.file != nil {
		return d.file, nil
	}
	if !(&callers{q: tx, ctx: ctx}).ours() {
		return nil, errors.New("sqlite.DB: this handle is of another driver; open its database with modernc.org/sqlite " +
			"(two SQLite libraries in one process damage the file)")
	}
	f, path := &opened{}, ""
	err := tx.QueryRowContext(ctx,
		"SELECT file, timeout FROM pragma_database_list, pragma_busy_timeout WHERE name = 'main'").Scan(&path, &f.timeout)
	if err != nil {
		return nil, err
	}
	if path != "" {
		if f.info, err = os.Stat(path); err != nil {
			return nil, err
		}
	}
	d.file = f
	return f, nil
}

// within reports whether ctx is inside a transaction on this file.
func within(ctx context.Context, file os.FileInfo) bool {
	for db := range txn.Databases(ctx) {
		if d, ok := db.(*database); ok && file != nil && d.file.info != nil && os.SameFile(d.file.info, file) {
			return true
		}
	}
	return false
}

func (d *database) Commit(_ context.Context, tx *sql.Tx) error {
	err := d.pool.Commit(tx)
	switch resultCode(err) & 0xff {
	case sqlite3.SQLITE_IOERR: // it may be on the disk, and come back when the file is repaired
		return fmt.Errorf("%w: %w", txn.ErrUncertain, err)
	case sqlite3.SQLITE_ERROR: // no transaction is active
		return fmt.Errorf("%w: SQLite undid it when a statement failed, whose error was not returned: %w", txn.ErrRolledBack,
			err)
	}
	return err
}

// it fails where SQLite has undone everything already
func (d *database) Rollback(tx *sql.Tx) { _ = d.pool.Rollback(tx) }

// Lost is never true: there is no server.
func (d *database) Lost(*sql.Tx) bool { return false }

// LockKeys has nothing to do: the transaction has the write lock, and that is all locks at once.
func (d *database) LockKeys(context.Context, *sql.Tx, []string) error { return nil }

func (d *database) Conn(tx *sql.Tx) ledger.Conn { return Wrap(tx) }

func (d *database) Transient(err error) bool { return busy(err) }

// outside refuses a call that writes and whose ctx is inside a transaction on this file: it would
// wait for its own caller.
func (s *Store) outside(ctx context.Context) error {
	if !within(ctx, s.file.open[0]) {
		return nil
	}
	return &ledger.InvalidError{Field: "ctx", Reason: fmt.Sprintf("is inside a transaction on %s, for whose end this "+
		"call would wait\n"+
		"  use AddTx or FinishTx with the Conn of the transaction, or a context from outside of it", s.file.name)}
}
