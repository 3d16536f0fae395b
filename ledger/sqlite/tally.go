package sqlite

import (
	"context"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/where"
)

// Tally implements ledger.Store.
func (s *Store) Tally(ctx context.Context, f ledger.Filter, column string, each func(ledger.Tally) error) error {
	return s.read(ctx, true, func(r session) error {
		f, err := narrow(r, f)
		if err != nil {
			return err
		}
		from, _ := of(f)
		matches, args := where.Build(f, where.SQLite, "?1", []any{s.clock()})
		list, group := where.Tally(column, "?1")
		return r.query(`SELECT `+list+from+` LEFT JOIN `+newest+` WHERE `+matches+group, func(r row) error {
			t := ledger.Tally{Value: r.bytes(0), State: ledger.States[r.int(1)], Items: r.int(2)}
			if column != ledger.ByPayload {
				t.Value = []byte(r.text(0))
			}
			return each(t)
		}, args...)
	})
}
