// Package sqltx begins transactions of database/sql that do not end with the context of their Begin. Otherwise
// database/sql would roll back from another goroutine at any moment. A driver would give up on a running COMMIT, so
// that its result would be unknown.
package sqltx

import (
	"context"
	"database/sql"
	"sync"
	"time"
)

// Pool begins transactions on a handle. End each of them with Commit or Rollback of the Pool.
type Pool struct {
	DB   *sql.DB
	open sync.Map // *sql.Tx → held
}

type held struct {
	conn   *sql.Conn
	cancel context.CancelFunc // of the context of the transaction
}

// endTimeout is the longest time for COMMIT or ROLLBACK.
const endTimeout = 10 * time.Second

// Begin waits for a connection, until ctx ends, and begins a transaction on it. Each statement of the transaction ends
// with its own context.
func (p *Pool) Begin(ctx context.Context, o sql.TxOptions) (*sql.Tx, error) {
	conn, err := p.DB.Conn(ctx)
	if err != nil {
		return nil, err
	}
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	tx, err := conn.BeginTx(lasting, &o)
	if err == nil && !stop() {
		_ = tx.Rollback()
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		_ = conn.Close()
		return nil, err
	}
	p.open.Store(tx, held{conn, cancel})
	return tx, nil
}

// Raw calls fn with the driver's connection of tx, unless tx has ended.
func (p *Pool) Raw(tx *sql.Tx, fn func(conn any)) {
	if v, ok := p.open.Load(tx); ok {
		_ = v.(held).conn.Raw(func(conn any) error { fn(conn); return nil })
	}
}

// Commit commits tx and gives its connection back.
func (p *Pool) Commit(tx *sql.Tx) error { return p.end(tx, tx.Commit) }

// Rollback rolls tx back and gives its connection back.
func (p *Pool) Rollback(tx *sql.Tx) error { return p.end(tx, tx.Rollback) }

func (p *Pool) end(tx *sql.Tx, how func() error) error {
	if v, ok := p.open.LoadAndDelete(tx); ok {
		h := v.(held)
		timer := time.AfterFunc(endTimeout, h.cancel)
		defer func() {
			timer.Stop()
			h.cancel()
			_ = h.conn.Close()
		}()
	}
	return how()
}
