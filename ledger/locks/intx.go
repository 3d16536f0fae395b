package locks

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/txn"
)

// InTx acquires a lock, runs fn in a transaction of r, and releases the lock. The database of r must be the ledger's
// own. Before the commit, InTx calls [Manager.Check] in the transaction. So a holder that lost its lock cannot commit,
// and InTx returns ErrLost. If fn fails or panics, the transaction is rolled back before the lock is released.
//
// As with [txn.Runner.Run], fn may be called several times, under the same lock. InTx refuses a ctx that is already
// inside a transaction, because that transaction would commit after the lock is released.
//
// Other errors: those of Acquire, such as *HeldError; that of fn; those of Run.
func InTx[T any](ctx context.Context, m *Manager, r *txn.Runner[T], name string, o Options,
	fn func(ctx context.Context, tx T, l *Lock) error) error {
	for range txn.Databases(ctx) {
		return &ledger.InvalidError{Field: "ctx",
			Reason: "is inside a transaction, which would commit after the lock was freed", Hint: "call InTx outside of Run"}
	}
	held, l, err := m.Acquire(ctx, name, o)
	if err != nil {
		return err
	}
	defer m.end(ctx, l)
	err = r.Run(held, func(ctx context.Context, tx T) error {
		if err := fn(ctx, tx, l); err != nil {
			return err
		}
		return m.Check(ctx, r.Conn(tx), l)
	})
	if err != nil && l.keeper.lost.Load() {
		return lost(err)
	}
	return err
}

// lost adds ErrLost to an error; the error may be nil.
func lost(err error) error {
	if err == nil || errors.Is(err, ErrLost) {
		return ErrLost
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}
