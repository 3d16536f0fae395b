package sqlite

import (
	"context"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/sqlstore"
)

// Audit implements ledger.Store.
func (s *Store) Audit(ctx context.Context, after int64, limit int) (all []ledger.Audited, err error) {
	err = s.read(ctx, true, func(r session) error {
		recs, err := records(r, `SELECT `+recordColumns+` FROM ledger_items i LEFT JOIN ledger_backlog b ON b.item_id = i.id
 WHERE i.id > ?1 ORDER BY i.id LIMIT ?2`, after, limit)
		if err != nil {
			return err
		}
		all = make([]ledger.Audited, 0, len(recs))
		err = r.query(`SELECT checksum FROM ledger_items WHERE id > ?1 ORDER BY id LIMIT ?2`, func(r row) error {
			all = append(all, ledger.Audited{Checksum: uint32(r.int(0))})
			return nil
		}, after, limit)
		if err != nil {
			return err
		}
		var ended []ledger.Attempt // of all records, in their order
		var a sqlstore.AttemptRow
		dest := a.Dest()
		err = r.query(`SELECT `+sqlstore.AttemptColumns+` FROM ledger_attempts a
 WHERE a.item_id IN (SELECT value FROM json_each(?1)) ORDER BY a.item_id, a.attempt`, func(r row) error {
			r.scan(dest)
			ended = append(ended, a.Attempt())
			return nil
		}, array(recordIDs(recs)))
		if err != nil {
			return err
		}
		for i := range recs {
			n := 0
			for n < len(ended) && ended[n].ItemID == recs[i].ID {
				n++
			}
			all[i].Record = recs[i]
			if n > 0 {
				all[i].Attempts = ended[:n:n]
			}
			ended = ended[n:]
		}
		return nil
	})
	return all, err
}
