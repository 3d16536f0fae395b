package postgres

import (
	"context"
	"time"

	"github.com/ledgerd/ledgerd/ledger/internal/sqlstore"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// addTallies adds counts to those that are stored. Each agent has rows of its own, so that no two programs wait for
// each other. The rows are nevertheless written in one order.
var addTallies = `INSERT INTO {{S}}.ledger_tallies AS t (at, kind, agent, done, failed, other, worked, waits, works)
 SELECT at, kind, agent, ` + sums + `
 FROM unnest($1::timestamptz[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::text[]) n(at, kind, agent, done, failed, other, worked, waits, works)
 GROUP BY at, kind, agent ORDER BY at, kind, agent
 ON CONFLICT (at, kind, agent) DO UPDATE SET ` + sumTallies

var (
	// sums are the columns of a group of rows, added up.
	sums = `sum(done), sum(failed), sum(other), sum(worked), ` + latencies(`array_agg(waits)`) + `, ` +
		latencies(`array_agg(works)`)

	sumTallies = `done = t.done + excluded.done, failed = t.failed + excluded.failed, other = t.other + excluded.other, worked = t.worked + excluded.worked,
 waits = ` + latencies(`ARRAY[t.waits, excluded.waits]`) + `, works = ` + latencies(`ARRAY[t.works, excluded.works]`)
)

// latencies adds up an array of JSON arrays of numbers, element by element.
func latencies(texts string) string {
	return `(SELECT coalesce(json_agg(n ORDER BY place)::text, '[]') FROM (SELECT place, sum(v::bigint) AS n
 FROM unnest(` + texts + `) l(list) CROSS JOIN json_array_elements_text(l.list::json) WITH ORDINALITY e(v, place) GROUP BY place) s)`
}

// AddTallies implements ledger.Store.
func (s *Store) AddTallies(ctx context.Context, tallies []stats.Minute) error {
	var at []time.Time
	var kinds, agents, waits, works []string
	var done, failed, other, worked []int64
	for _, t := range tallies {
		at, kinds, agents = append(at, t.At), append(kinds, t.Kind), append(agents, t.Agent)
		done, failed, other = append(done, t.Done), append(failed, t.Failed), append(other, t.Other)
		worked = append(worked, t.Worked.Microseconds())
		waits, works = append(waits, sqlstore.Latencies(t.Waits)), append(works, sqlstore.Latencies(t.Works))
	}
	return s.write(ctx, func(ss session) error {
		return ss.query(addTallies, []any{at, kinds, agents, done, failed, other, worked, waits, works}, nil)
	})
}

// ForgetTallies implements ledger.Store.
func (s *Store) ForgetTallies(ctx context.Context, before time.Time) error {
	return s.write(ctx, func(ss session) error {
		return ss.query(`DELETE FROM {{S}}.ledger_tallies WHERE at < $1`, []any{before}, nil)
	})
}
