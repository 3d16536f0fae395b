package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ledgerd/ledgerd/ledger/internal/wait"
)

// tries bounds how often a transaction is run when the server undoes it or the connection is
// lost before anything was committed.
const tries = 10

// session runs statements one after the other.
type session interface {
	// query runs a template and calls row for each row of the result.
	query(template string, args []any, row func(scanner) error) error
	// later is query that may wait for the next query, for flush, or for the commit.
	later(template string, args []any, row func(scanner) error) error
	flush() error
}

// run calls op with a connection of the hot path, again when the server has undone it.
func (s *Store) run(ctx context.Context, op func(context.Context, *pgx.Conn) error) error {
	return s.runIn(ctx, s.hot, op)
}

// runIn is run with a connection of a pool.
func (s *Store) runIn(ctx context.Context, pool *pgxpool.Pool, op func(context.Context, *pgx.Conn) error) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	for try := 1; ; try++ {
		err := s.once(ctx, pool, op)
		if err == nil || try == tries || ctx.Err() != nil || !mayRepeat(err) {
			return explain(ctx, s.name, away(s.name, err))
		}
		s.repeated.Add(1)
		// Full jitter, up to 128 ms: transactions that met must not meet again.
		_ = wait.For(ctx, rand.N(time.Millisecond<<min(try, 7)))
	}
}

// mayRepeat reports whether nothing was committed before the error, so that the call may be repeated.
func mayRepeat(err error) bool {
	if errors.As(err, new(final)) {
		return false
	}
	return rolledBack(err) || unprepared(err) || errors.As(err, new(repeatable)) || errors.As(err, new(keyNotNew))
}

// runOnce calls op with a connection of a pool, and never again.
func (s *Store) runOnce(ctx context.Context, pool *pgxpool.Pool, op func(context.Context, *pgx.Conn) error) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	return explain(ctx, s.name, away(s.name, s.once(ctx, pool, op)))
}

// once calls op with a connection, and closes the connection if no further call should use it.
func (s *Store) once(ctx context.Context, pool *pgxpool.Pool, op func(context.Context, *pgx.Conn) error) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	data := conn.Conn().PgConn().CustomData()
	delete(data, unreplicatedMark)
	err = op(ctx, conn.Conn())
	if data[unreplicatedMark] != nil {
		// The server reported the commit as done. It was cancelled while it waited for the standby: a failover may lose it.
		err = errUnreplicated
	}
	// After a failover the next connection finds the new primary, and a new session prepares anew. Where
	// the server was asked to cancel, it may do so late, to a statement of the connection's next user.
	if readOnly(err) || unprepared(err) || ctx.Err() != nil {
		_ = conn.Conn().Close(context.WithoutCancel(ctx))
	}
	return err
}

// repeatable is an error after which nothing was committed, so that runIn repeats the call.
type repeatable struct{ error }

func (r repeatable) Unwrap() error { return r.error }

// final is an error after which runIn does not repeat the call.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// keyNotNew is a conflict with a key that was thought new. runIn repeats the call.
type keyNotNew struct{ error }

func (k keyNotNew) Unwrap() error { return k.error }

// uncommitted marks the loss of a connection before a commit was sent.
func uncommitted(err error) error {
	if err != nil && lost(err) {
		return repeatable{err}
	}
	return err
}

// committing marks the loss of a connection while a commit was under way.
func committing(err error) error {
	if err != nil && lost(err) {
		return fmt.Errorf("%w: %w", errUnknownFate, err)
	}
	return err
}

// direct is a session in which every statement is a transaction.
type direct struct {
	ctx  context.Context
	s    *Store
	conn *pgx.Conn
}

func (d direct) query(template string, args []any, row func(scanner) error) error {
	sql := d.s.render(template)
	if d.s.prepares(d.conn)[sql] {
		if _, err := d.conn.Prepare(d.ctx, sql, sql); err != nil {
			return err
		}
	}
	rows, err := d.conn.Query(d.ctx, sql, append([]any{pgx.QueryExecModeCacheDescribe}, args...)...)
	if err != nil {
		return err
	}
	return each(pgxRows{rows}, row)
}

func (d direct) later(template string, args []any, row func(scanner) error) error {
	return d.query(template, args, row)
}

func (direct) flush() error { return nil }

// read runs statements that change nothing. fn may be called again and starts afresh then.
func (s *Store) read(ctx context.Context, fn func(session) error) error {
	return s.runIn(ctx, s.pool, func(ctx context.Context, c *pgx.Conn) error {
		return uncommitted(fn(direct{ctx, s, c}))
	})
}

// lookUp is read with a connection of the hot path.
func (s *Store) lookUp(ctx context.Context, fn func(session) error) error {
	return s.run(ctx, func(ctx context.Context, c *pgx.Conn) error {
		return uncommitted(fn(direct{ctx, s, c}))
	})
}

// write runs one statement that commits by itself. fn may be called again and starts afresh then.
func (s *Store) write(ctx context.Context, fn func(session) error) error {
	return s.run(ctx, func(ctx context.Context, c *pgx.Conn) error {
		return committing(fn(direct{ctx, s, c}))
	})
}
