package txn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ledgerd/ledgerd/ledger/internal/wait"
)

// Run calls fn in a transaction and commits it; an error, a panic or the end of ctx rolls it back.
//
// Inside fn, Run with the ctx that fn got, on the same pool, joins the transaction. On another pool it begins its own
// transaction each time that fn is called, and that one commits by itself. When the database gives up on the
// transaction, however deep, the outermost Run rolls back and calls its fn again after a jittered pause. The comment
// of the package has the rules for fn.
//
// Errors: what fn returned; ErrRolledBack with the first cause, if fn returned nil, or an error that hides the cause,
// though a joined call had failed; *TriesError; ErrUncertain; the error of ctx.
func (r *Runner[T]) Run(ctx context.Context, fn func(ctx context.Context, tx T) error) error {
	if t := find(ctx, r.db.Pool()); t != nil {
		return r.join(ctx, t, fn)
	}
	limited, cancel := context.WithTimeout(ctx, r.config.MaxTime)
	defer cancel()
	var keys []string
	for n := 1; ; n++ {
		start := time.Now()
		err := r.try(limited, fn, &keys)
		transient := r.transient(err)
		again := transient && n < r.config.MaxTries && limited.Err() == nil
		if r.config.OnTry != nil {
			r.config.OnTry(Try{N: n, Err: err, Repeat: again, Took: time.Since(start)})
		}
		switch {
		case err == nil || errors.Is(err, ErrUncertain):
			return err
		case ctx.Err() != nil:
			return ended(ctx, err)
		case limited.Err() != nil:
			return &TriesError{n, fmt.Errorf("its %v are over: %w", r.config.MaxTime, ended(limited, err))}
		case !transient:
			return err
		case !again:
			return &TriesError{n, err}
		}
		// Full jitter, up to 128 ms: transactions that met must not meet again.
		if wait.For(limited, rand.N(time.Millisecond<<min(n, 7))) == nil {
			continue
		}
		if ctx.Err() != nil {
			return ended(ctx, err)
		}
		return &TriesError{n, fmt.Errorf("its %v are over: %w", r.config.MaxTime, ended(limited, err))}
	}
}

// transient reports whether a failure may be repeated. A transaction that a Run on another database has given up
// was repeated there, so it is not.
func (r *Runner[T]) transient(err error) bool {
	if err == nil || errors.Is(err, ErrUncertain) || errors.As(err, new(*TriesError)) {
		return false
	}
	return errors.Is(err, errLost) || r.db.Transient(err)
}

// ended adds the error of ctx to err, unless err matches it already.
func ended(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return ctx.Err()
	case errors.Is(err, ctx.Err()):
		return err
	}
	return fmt.Errorf("%w: %w", ctx.Err(), err)
}

// try is one call of fn in a transaction of its own. It begins by locking the keys of the try before, all in one order,
// so functions that lock key by key meet in a deadlock only once. It leaves in keys those for the next try.
func (r *Runner[T]) try(ctx context.Context, fn func(ctx context.Context, tx T) error, keys *[]string) (err error) {
	tx, err := r.db.Begin(ctx, r.config.Isolation)
	if err != nil {
		return err
	}
	t := &transaction{
		pool: r.db.Pool(), db: r.db, tx: tx, isolation: r.config.Isolation,
		lock: func(ctx context.Context, keys []string) error { return r.db.LockKeys(ctx, tx, keys) },
	}
	commits := false
	defer func() { // also when fn panics or ends its goroutine
		*keys = t.end()
		if !commits {
			r.db.Rollback(tx)
		}
	}()
	inner := within(ctx, t)
	if err := t.take(ctx, *keys); err != nil {
		return err
	}
	err = fn(inner, tx)
	cause := t.failed()
	switch {
	case ctx.Err() != nil:
		return ended(ctx, err)
	// fn has hidden the failure of a joined call: it returned nil, or an error from which Run cannot see that the
	// transaction may be repeated.
	case cause != nil && (err == nil || r.transient(cause) && !r.transient(err)):
		err = fmt.Errorf("%w: %w", ErrRolledBack, cause)
	}
	if !r.transient(err) && !ownDeadline(err) && r.db.Lost(tx) {
		err = errors.Join(errLost, err)
	}
	if err != nil {
		return err
	}
	commits = true
	return r.db.Commit(ctx, tx)
}

// ownDeadline reports whether an error is of a context of fn's own. The end of such a context may close a connection.
func ownDeadline(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// join calls fn in the transaction that ctx is in.
func (r *Runner[T]) join(ctx context.Context, t *transaction, fn func(ctx context.Context, tx T) error) (err error) {
	if err := t.rolledBack(); err != nil {
		return err
	}
	if r.config.Isolation > t.isolation {
		return t.fail(fmt.Errorf("txn: a %v transaction cannot be part of a %v one; give the outer Runner that level",
			r.config.Isolation, t.isolation))
	}
	returned := false
	defer func() {
		if !returned {
			t.fail(errors.New("a joined call panicked"))
		}
	}()
	err = fn(within(ctx, t), t.tx.(T))
	returned = true
	if err != nil {
		t.fail(err)
	}
	return err
}
