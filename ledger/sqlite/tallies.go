package sqlite

import (
	"context"
	"time"

	"github.com/ledgerd/ledgerd/ledger/internal/sqlstore"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

var sumTallies = ` ON CONFLICT (at, kind, agent) DO UPDATE SET done = done + excluded.done, failed = failed + excluded.failed,
 other = other + excluded.other, worked = worked + excluded.worked, waits = ` + latencies("waits") + `, works = ` + latencies("works")

// latencies adds two JSON arrays of numbers, element by element: that of the column and that of the excluded row.
func latencies(column string) string {
	return `(SELECT json_group_array(n ORDER BY place) FROM (SELECT key AS place, sum(value) AS n FROM (
 SELECT key, value FROM json_each(ledger_tallies.` + column + `) UNION ALL SELECT key, value FROM json_each(excluded.` + column + `)) GROUP BY key))`
}

// AddTallies implements ledger.Store.
func (s *Store) AddTallies(ctx context.Context, tallies []stats.Minute) error {
	return s.write(ctx, true, func(t *turn) error {
		for _, n := range tallies {
			_, err := t.exec(`INSERT INTO ledger_tallies (at, kind, agent, done, failed, other, worked, waits, works) 
 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)`+sumTallies,
				n.At, n.Kind, n.Agent, n.Done, n.Failed, n.Other, n.Worked.Microseconds(), sqlstore.Latencies(n.Waits),
				sqlstore.Latencies(n.Works))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// ForgetTallies implements ledger.Store.
func (s *Store) ForgetTallies(ctx context.Context, before time.Time) error {
	due := false
	err := s.probe(ctx, func(r session) (err error) { // mostly there is nothing to do
		due, err = exists(r, `SELECT 1 FROM ledger_tallies WHERE at < ?1`, before)
		return err
	})
	if err != nil || !due {
		return err
	}
	return s.write(ctx, true, func(t *turn) error {
		_, err := t.exec(`DELETE FROM ledger_tallies WHERE at < ?1`, before)
		return err
	})
}
