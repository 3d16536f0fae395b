package sqlite

import (
	"context"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

const sumTallies = ` ON CONFLICT (span, at, kind, agent) DO UPDATE SET done = done + excluded.done, failed = failed + excluded.failed,
 other = other + excluded.other, worked = worked + excluded.worked`

// AddTallies implements ledger.Store.
func (s *Store) AddTallies(ctx context.Context, tallies []ledger.MinuteTally) error {
	return s.write(ctx, true, func(t *turn) error {
		for _, n := range tallies {
			_, err := t.exec(`INSERT INTO ledger_tallies (span, at, kind, agent, done, failed, other, worked) VALUES (60, ?1, ?2, ?3, ?4, ?5, ?6, ?7)`+sumTallies,
				n.At, n.Kind, n.Agent, n.Done, n.Failed, n.Other, n.Worked.Microseconds())
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Tallies implements ledger.Store.
func (s *Store) Tallies(ctx context.Context, since time.Time) (all []ledger.MinuteTally, err error) {
	err = s.read(ctx, false, func(r session) error {
		return r.query(`SELECT at, kind, sum(done), sum(failed), sum(other), sum(worked) FROM ledger_tallies WHERE span = 60 AND at >= ?1 GROUP BY at, kind ORDER BY at, kind`, func(r row) error {
			all = append(all, ledger.MinuteTally{At: r.time(0), Kind: r.text(1), Done: r.int(2), Failed: r.int(3), Other: r.int(4), Worked: time.Duration(r.int(5)) * time.Microsecond})
			return nil
		}, since)
	})
	return all, err
}

// hour is one in microseconds.
const hour = int64(time.Hour / time.Microsecond)

// FoldTallies implements ledger.Store.
func (s *Store) FoldTallies(ctx context.Context, minutes, hours time.Time) error {
	due := false
	err := s.read(ctx, false, func(r session) error { // nearly always there is nothing to do
		return r.query(`SELECT EXISTS (SELECT 1 FROM ledger_tallies WHERE span = 60 AND at < ?1) OR EXISTS (SELECT 1 FROM ledger_tallies WHERE span = 3600 AND at < ?2)`, func(r row) error {
			due = r.bool(0)
			return nil
		}, minutes, hours)
	})
	if err != nil || !due {
		return err
	}
	return s.write(ctx, true, func(t *turn) error {
		_, err := t.exec(`INSERT INTO ledger_tallies (span, at, kind, agent, done, failed, other, worked)
 SELECT 3600, at - at % ?2, kind, agent, done, failed, other, worked FROM ledger_tallies WHERE span = 60 AND at < ?1`+sumTallies, minutes, hour)
		if err == nil {
			_, err = t.exec(`DELETE FROM ledger_tallies WHERE span = 60 AND at < ?1`, minutes)
		}
		if err == nil {
			_, err = t.exec(`DELETE FROM ledger_tallies WHERE span = 3600 AND at < ?1`, hours)
		}
		return err
	})
}

// LeasedBy implements ledger.Store.
func (s *Store) LeasedBy(ctx context.Context) (map[string]int64, error) {
	held := map[string]int64{}
	err := s.read(ctx, false, func(r session) error {
		return r.query(`SELECT locked_by, count(*) FROM ledger_backlog INDEXED BY ledger_backlog_leased WHERE state = 2 GROUP BY locked_by`, func(r row) error {
			held[r.text(0)] = r.int(1)
			return nil
		})
	})
	return held, err
}
