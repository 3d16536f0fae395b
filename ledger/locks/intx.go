package locks

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/txn"
)

// InTx runs fn under a lock and in a transaction of r, which is on the ledger's own database. On
// error or panic what fn wrote is rolled back first, and then the lock is freed. Before the commit
// [Manager.Check] is called in the transaction, so a holder that lost its lock cannot commit: ErrLost.
//
// As with [txn.Runner.Run], fn may be called again, under the same lock. A ctx that is inside of a
// transaction already is refused: its commit would come after the lock was freed.
//
// Errors besides: *HeldError; those of Acquire; that of fn; those of Run.
func InTx[T any](ctx context.Context, m *Manager, r *txn.Runner[T], name string, o Options,
	fn func(ctx context.Context, tx T, l *Lock) error) error {
	for range txn.Databases(ctx) {
		return &ledger.InvalidError{Field: "ctx", Reason: "is inside a transaction, which would commit after the lock was freed; call InTx outside of Run"}
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

// lost is an error, or none, under a lock that was lost.
func lost(err error) error {
	if err == nil || errors.Is(err, ErrLost) {
		return ErrLost
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}
