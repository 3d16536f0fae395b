package postgres

import (
	"context"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// addTallies adds rows to those that are there. Each agent has rows of its own, so that no two
// programs wait for each other; the order is the same for all the same.
const addTallies = `INSERT INTO {{S}}.ledger_tallies AS t (span, at, kind, agent, done, failed, other, worked)
 SELECT 60, at, kind, agent, sum(done), sum(failed), sum(other), sum(worked)
 FROM unnest($1::timestamptz[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[]) n(at, kind, agent, done, failed, other, worked)
 GROUP BY at, kind, agent ORDER BY at, kind, agent
 ON CONFLICT (span, at, kind, agent) DO UPDATE SET ` + sumTallies

const sumTallies = `done = t.done + excluded.done, failed = t.failed + excluded.failed, other = t.other + excluded.other, worked = t.worked + excluded.worked`

// AddTallies implements ledger.Store.
func (s *Store) AddTallies(ctx context.Context, tallies []ledger.MinuteTally) error {
	var at []time.Time
	var kinds, agents []string
	var done, failed, other, worked []int64
	for _, t := range tallies {
		at, kinds, agents = append(at, t.At), append(kinds, t.Kind), append(agents, t.Agent)
		done, failed, other = append(done, t.Done), append(failed, t.Failed), append(other, t.Other)
		worked = append(worked, t.Worked.Microseconds())
	}
	return s.write(ctx, func(ss session) error {
		return ss.query(addTallies, []any{at, kinds, agents, done, failed, other, worked}, nil)
	})
}

// Tallies implements ledger.Store.
func (s *Store) Tallies(ctx context.Context, since time.Time) ([]ledger.MinuteTally, error) {
	return collect(ctx, s, `SELECT at, kind, sum(done)::bigint, sum(failed)::bigint, sum(other)::bigint, sum(worked)::bigint
 FROM {{S}}.ledger_tallies WHERE span = 60 AND at >= $1 GROUP BY at, kind ORDER BY at, kind`, []any{since}, func(scan scanner) (ledger.MinuteTally, error) {
		var t ledger.MinuteTally
		var worked int64
		err := scan(&t.At, &t.Kind, &t.Done, &t.Failed, &t.Other, &worked)
		t.At, t.Worked = t.At.UTC(), time.Duration(worked)*time.Microsecond
		return t, err
	})
}

// FoldTallies implements ledger.Store. Who deletes a minute adds it to its hour, in one statement:
// of several that fold at the same time only one finds it.
func (s *Store) FoldTallies(ctx context.Context, minutes, hours time.Time) error {
	err := s.write(ctx, func(ss session) error {
		return ss.query(`WITH gone AS (DELETE FROM {{S}}.ledger_tallies WHERE span = 60 AND at < $1 RETURNING *)
INSERT INTO {{S}}.ledger_tallies AS t (span, at, kind, agent, done, failed, other, worked)
 SELECT 3600, date_trunc('hour', at, 'UTC'), kind, agent, sum(done), sum(failed), sum(other), sum(worked) FROM gone
 GROUP BY 2, kind, agent ORDER BY 2, kind, agent
 ON CONFLICT (span, at, kind, agent) DO UPDATE SET `+sumTallies, []any{minutes}, nil)
	})
	if err != nil {
		return err
	}
	return s.write(ctx, func(ss session) error {
		return ss.query(`DELETE FROM {{S}}.ledger_tallies WHERE span = 3600 AND at < $1`, []any{hours}, nil)
	})
}

// LeasedBy implements ledger.Store.
func (s *Store) LeasedBy(ctx context.Context) (map[string]int64, error) {
	held := map[string]int64{}
	err := s.read(ctx, func(ss session) error {
		clear(held)
		return ss.query(`SELECT locked_by, count(*) FROM {{S}}.ledger_backlog WHERE state = 2 GROUP BY locked_by`, nil, func(scan scanner) error {
			var agent string
			var n int64
			err := scan(&agent, &n)
			held[agent] = n
			return err
		})
	})
	return held, err
}
