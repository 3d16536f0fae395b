package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/sqlstore"
)

// Audit implements ledger.Store. It reads the items and their attempts in one snapshot, in one round trip.
func (s *Store) Audit(ctx context.Context, after int64, limit int) ([]ledger.Audited, error) {
	var out []ledger.Audited
	err := s.runIn(ctx, s.pool, func(ctx context.Context, conn *pgx.Conn) error {
		out = nil
		var sum int32
		row, attempt := records(&sum), sqlstore.AttemptRow{}
		ended := targetsOf(attempt.Dest()...)
		next := 0 // index in out of the item to which the next attempt may belong: both come in the order of ids
		statements := []statement{
			{sql: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"},
			{s.render(`SELECT ` + recordColumns + `, coalesce(i.checksum, 0) FROM ` + recordTables +
				` WHERE i.id > $1 ORDER BY i.id LIMIT $2`), []any{after, limit}, func(scan scanner) error {
				r, err := row.record(scan)
				out = append(out, ledger.Audited{Record: r, Checksum: uint32(sum)})
				return err
			}},
			{s.render(`SELECT ` + sqlstore.AttemptColumns +
				` FROM (SELECT id FROM {{S}}.ledger_items WHERE id > $1 ORDER BY id LIMIT $2) i
 JOIN {{S}}.ledger_attempts a ON a.item_id = i.id ORDER BY a.item_id, a.attempt`), []any{after, limit}, func(scan scanner) error {
				if err := ended.scan(scan); err != nil {
					return err
				}
				a := attempt.Attempt()
				for next < len(out) && out[next].ID != a.ItemID {
					next++
				}
				if next < len(out) {
					out[next].Attempts = append(out[next].Attempts, a)
				}
				return nil
			}},
			{sql: commit},
		}
		o := newOwn(ctx, s, conn)
		o.waiting, o.begun = statements, true
		err := o.flush()
		if err != nil {
			o.rollback()
		}
		return uncommitted(err)
	})
	return out, err
}
