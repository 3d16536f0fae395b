package sqlite

import (
	"context"

	"github.com/ledgerd/ledgerd/ledger"
)

// Update implements ledger.Store.
func (s *Store) Update(ctx context.Context, conn ledger.Conn, fn func(ledger.Tx) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return errClosed
	}
	if conn != nil {
		return s.inside(ctx, conn, func(x *tx) error { return fn(x) })
	}
	if err := s.refuseInside(ctx); err != nil {
		return err
	}
	x := newTx(s)
	x.turn = s.w.turn(ctx, false)
	finished := false
	defer func() {
		if !finished {
			x.turn.end(errAbandoned)
		}
	}()
	err := fn(x)
	finished = true
	return explain(s.file.name, x.turn.end(err))
}
