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

// DB returns a txn.DB that runs transactions on the caller's handle. The handle must use the driver modernc.org/sqlite.
// Its file need not be that of a ledger.
//
// Each transaction begins with BEGIN IMMEDIATE, whatever mode the DSN has. So transactions exclude each other, also
// those that only read. A transaction waits for the file's write lock in the same way as the ledger does, whatever
// busy_timeout the DSN has, so that no caller starves.
//
// Until a transaction ends, every other write to the file waits. A call of the ledger in that file that writes is
// refused with the ctx of the transaction, because it would wait for its own caller: use AddTx and FinishTx.
func DB(db *sql.DB) txn.DB[*sql.Tx] {
	return &database{pool: sqltx.Pool{DB: db}, queue: make(chan struct{}, 1)}
}

type database struct {
	pool sqltx.Pool
	// queue is a lock: one caller at a time asks for the write lock of the file. Others stop waiting when their ctx ends.
	queue chan struct{}

	mu   sync.Mutex
	file *fileInfo // nil until the first transaction
}

// fileInfo describes the database of the handle.
type fileInfo struct {
	stat    os.FileInfo // nil for a database without a file
	timeout int64       // busy_timeout of the handle, in milliseconds
}

func (d *database) Pool() any { return d.pool.DB }

// Begin begins a transaction through database/sql, then replaces it by one that holds the write lock.
func (d *database) Begin(ctx context.Context, _ txn.Isolation) (*sql.Tx, error) {
	select {
	case d.queue <- struct{}{}:
		defer func() { <-d.queue }()
	case <-ctx.Done():
		return nil, errWaited(ctx)
	}
	tx, err := d.pool.Begin(ctx, sql.TxOptions{ReadOnly: true}) // this driver then runs a plain BEGIN, despite _txlock
	if err != nil {
		return nil, err
	}
	if err := d.lock(ctx, tx); err != nil {
		d.Rollback(tx)
		return nil, err
	}
	return tx, nil
}

// lock replaces the transaction that tx has begun by one with the write lock, on the same connection. It repeats BEGIN
// IMMEDIATE by itself, without busy_timeout: waiting in SQLite may starve.
func (d *database) lock(ctx context.Context, tx *sql.Tx) error {
	f, err := d.fileOf(ctx, tx)
	if err != nil {
		return err
	}
	if within(ctx, f.stat) {
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
	p := newPatience(commitWatch(ctx, tx))
	for busy(err) {
		p.pause()
		if ctx.Err() != nil {
			return errWaited(ctx)
		}
		_, err = tx.ExecContext(ctx, begin)
	}
	return err
}

func errWaited(ctx context.Context) error {
	return fmt.Errorf("sqlite: waiting for the write lock: %w", ctx.Err())
}

// commitWatch returns a function that reports whether another connection has committed since its last call.
func commitWatch(ctx context.Context, tx *sql.Tx) func() bool {
	version := int64(-1)
	return func() bool {
		before := version
		err := tx.QueryRowContext(ctx, "PRAGMA data_version").Scan(&version)
		return err == nil && version != before
	}
}

// fileOf returns the database of the handle. It reads that once.
func (d *database) fileOf(ctx context.Context, tx *sql.Tx) (*fileInfo, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.file != nil {
		return d.file, nil
	}
	ours, err := usesOurDriver(ctx, tx)
	switch {
	case err != nil:
		return nil, err
	case !ours:
		return nil, errors.New("sqlite.DB: this handle is of another driver; open its database with modernc.org/sqlite " +
			"(two SQLite libraries in one process damage the file)")
	}
	f, path := &fileInfo{}, ""
	err = tx.QueryRowContext(ctx,
		"SELECT file, timeout FROM pragma_database_list, pragma_busy_timeout WHERE name = 'main'").Scan(&path, &f.timeout)
	if err != nil {
		return nil, err
	}
	if path != "" {
		if f.stat, err = os.Stat(path); err != nil {
			return nil, err
		}
	}
	d.file = f
	return f, nil
}

// within reports whether ctx is inside a transaction of DB on this file.
func within(ctx context.Context, file os.FileInfo) bool {
	for db := range txn.Databases(ctx) {
		if d, ok := db.(*database); ok && file != nil && d.file.stat != nil && os.SameFile(d.file.stat, file) {
			return true
		}
	}
	return false
}

func (d *database) Commit(_ context.Context, tx *sql.Tx) error {
	err := d.pool.Commit(tx)
	switch resultCode(err) & 0xff {
	case sqlite3.SQLITE_IOERR: // the commit may be on the disk and take effect after a repair
		return fmt.Errorf("%w: %w", txn.ErrUncertain, err)
	case sqlite3.SQLITE_ERROR: // no transaction is active
		return fmt.Errorf("%w: SQLite undid it when a statement failed, whose error was not returned: %w", txn.ErrRolledBack,
			err)
	}
	return err
}

// Rollback ignores the error that SQLite returns when it has rolled back already.
func (d *database) Rollback(tx *sql.Tx) { _ = d.pool.Rollback(tx) }

// Lost returns false: there is no server whose connection could be lost.
func (d *database) Lost(*sql.Tx) bool { return false }

// LockKeys does nothing: the write lock of the transaction excludes every other transaction.
func (d *database) LockKeys(context.Context, *sql.Tx, []string) error { return nil }

func (d *database) Conn(tx *sql.Tx) ledger.Conn { return Wrap(tx) }

func (d *database) Transient(err error) bool { return busy(err) }

// refuseInside returns an error if ctx is inside a transaction of DB on this file: a call that writes would wait for
// its own caller.
func (s *Store) refuseInside(ctx context.Context) error {
	if !within(ctx, s.file.open[0]) { // the first is the file itself, see side
		return nil
	}
	return &ledger.InvalidError{Field: "ctx", Reason: fmt.Sprintf("is inside a transaction on %s, for whose end this "+
		"call would wait\n"+
		"  use AddTx or FinishTx with the Conn of the transaction, or a context from outside of it", s.file.name)}
}
