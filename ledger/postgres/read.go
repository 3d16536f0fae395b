package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/code"
	"github.com/ledgerd/ledgerd/ledger/internal/where"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// filtered is the condition of a filter with its arguments; they follow those given.
func filtered(f ledger.Filter, args ...any) (string, []any) {
	return where.Build(f, where.Postgres, "(SELECT {{NOW}})", args)
}

// Now implements ledger.Store.
func (s *Store) Now(ctx context.Context) (now time.Time, err error) {
	err = s.read(ctx, func(ss session) error {
		return ss.query(`SELECT {{NOW}}`, nil, func(scan scanner) error { return scan(&now) })
	})
	return now.UTC(), err
}

// Records implements ledger.Store.
func (s *Store) Records(ctx context.Context, q ledger.RecordQuery) ([]ledger.Record, error) {
	above, upTo := q.Filter.Bounds()
	condition, args := filtered(q.Filter, above, upTo, q.Limit)
	from, id := within(q.Filter, q.Desc)
	columns, order, scan := recordColumns, id, records().record
	if q.Output {
		columns, scan = columns+`, `+outputColumn, recordsWithOutput()
	}
	if q.Desc {
		order += ` DESC`
	}
	return collect(ctx, s, `SELECT `+columns+` FROM `+from+` WHERE `+condition+` ORDER BY `+order+` LIMIT $3`, args, scan)
}

// collect reads all rows of a statement. An empty result is not nil, as in memory.
func collect[T any](ctx context.Context, s *Store, template string, args []any, scan func(scanner) (T, error)) (out []T,
	err error) {
	err = s.read(ctx, func(ss session) error {
		out = []T{}
		return ss.query(template, args, func(row scanner) error {
			v, err := scan(row)
			out = append(out, v)
			return err
		})
	})
	return out, err
}

// Count implements ledger.Store.
func (s *Store) Count(ctx context.Context, f ledger.Filter) (int64, error) {
	above, upTo := f.Bounds()
	condition, args := filtered(f, above, upTo)
	from := counted(f, condition)
	var n int64
	err := s.read(ctx, func(ss session) error {
		return ss.query(`SELECT count(*) FROM `+from+` WHERE `+condition, args, func(scan scanner) error { return scan(&n) })
	})
	return n, err
}

// standingTemplate bounds each count and orders it like an index, so that the planner does not read the whole backlog.
const standingTemplate = `WITH clock AS MATERIALIZED (SELECT {{NOW}} AS now),
held AS MATERIALIZED (
 SELECT count(*) FILTER (WHERE held) AS held, count(*) FILTER (WHERE NOT held) AS persons FROM (
  SELECT locked_by IN (SELECT agent FROM {{S}}.ledger_agents) OR expires_at <= (SELECT now FROM clock) AS held FROM ` + leased + ` b WHERE kind = $1) h),
due AS (SELECT count(*) AS n FROM (SELECT FROM {{S}}.ledger_backlog WHERE stage = ` + code.Waiting + ` AND kind = $1 AND due_at <= (SELECT now FROM clock) ORDER BY due_at, item_id LIMIT $2) x)
SELECT (SELECT now FROM clock),
 least($2::bigint, (SELECT n FROM due) + (SELECT count(*) FROM (SELECT FROM {{S}}.ledger_backlog WHERE ` + isReady + ` AND gate = ` + code.Free + ` AND kind = $1 ORDER BY priority, due_at, item_id LIMIT $2) x) +
  (SELECT count(*) FROM (SELECT FROM {{S}}.ledger_backlog WHERE ` + filedRows + ` AND kind = $1 ORDER BY limit_key, priority, due_at, item_id LIMIT $2) x)),
 (SELECT held FROM held), (SELECT persons FROM held),
 (SELECT count(*) FROM (SELECT FROM {{S}}.ledger_backlog WHERE stage = ` + code.Waiting + ` AND kind = $1 AND due_at > (SELECT now FROM clock) ORDER BY due_at, item_id LIMIT $2) x),
 (SELECT due_at FROM {{S}}.ledger_backlog WHERE stage = ` + code.Waiting + ` AND kind = $1 AND due_at > (SELECT now FROM clock) ORDER BY due_at, item_id LIMIT 1),
 (SELECT count(*) FROM {{S}}.ledger_backlog WHERE stage = ` + code.Dead + ` AND kind = $1),
 (SELECT count(*) FROM {{S}}.ledger_backlog WHERE stage = ` + code.Doubt + ` AND kind = $1)`

// Standing implements ledger.Store.
func (s *Store) Standing(ctx context.Context, kind string, part scheduler.Shard) (out stats.Standing, err error) {
	err = s.read(ctx, func(ss session) (err error) {
		out, err = standing(ss, kind, part)
		return err
	})
	return out, err
}

func standing(ss session, kind string, part scheduler.Shard) (stats.Standing, error) {
	var st stats.Standing
	var next *time.Time
	const ofKind = `kind = $1`
	condition := ofKind
	if part.Count > 0 {
		condition += fmt.Sprintf(` AND coalesce(slot %% %d = %d, false)`, part.Count, part.Index)
	}
	err := ss.query(strings.ReplaceAll(standingTemplate, ofKind, condition), []any{kind, stats.StandingCap},
		func(scan scanner) error {
			return scan(&st.Now, &st.Ready, &st.Held, &st.Persons, &st.Waiting, &next, &st.Dead, &st.Doubt)
		})
	st.Now, st.NextDue = st.Now.UTC(), utc(next)
	return st, err
}

// countsTemplate counts the backlog in one pass, items that wait for their next round by how the current one ended, and
// attempts since $1 by the indexes of their ends.
const countsTemplate = `WITH clock AS MATERIALIZED (SELECT {{NOW}} AS now),
b AS MATERIALIZED (SELECT kind, CASE WHEN lock_id IS NOT NULL THEN ` + code.Leased + ` WHEN stage = ` + code.Waiting + ` AND due_at <= (SELECT now FROM clock) THEN ` + code.Ready + ` ELSE stage END AS state, count(*) AS n, min(due_at) AS due FROM {{S}}.ledger_backlog GROUP BY 1, 2)
SELECT k.kind, c.*, over.*,
 (SELECT count(*) FROM {{S}}.ledger_attempts a WHERE a.final AND a.kind = k.kind AND a.finished_at >= $1 AND a.outcome IN ` + code.Completed + `),
 (SELECT count(*) FROM {{S}}.ledger_attempts a WHERE a.outcome IN ` + code.Failures + ` AND a.kind = k.kind AND a.finished_at >= $1)
FROM {{S}}.ledger_kinds k CROSS JOIN LATERAL (
 SELECT coalesce(sum(n) FILTER (WHERE state = ` + code.Waiting + `), 0)::bigint, coalesce(sum(n) FILTER (WHERE state = ` + code.Ready + `), 0)::bigint, coalesce(sum(n) FILTER (WHERE state = ` + code.Leased + `), 0)::bigint,
  coalesce(sum(n) FILTER (WHERE state = ` + code.Dead + `), 0)::bigint, coalesce(sum(n) FILTER (WHERE state = ` + code.Doubt + `), 0)::bigint, min(due) FILTER (WHERE state = ` + code.Ready + `) FROM b WHERE b.kind = k.kind) c
CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE a.final AND a.outcome NOT IN ` + code.GaveUp + `), count(*) FILTER (WHERE a.final AND a.outcome IN ` + code.GaveUp + `),
  count(*) FILTER (WHERE NOT a.final), max(w.due_at) FILTER (WHERE NOT a.final)
 FROM (SELECT w.item_id, w.attempt, w.epoch, w.due_at FROM {{S}}.ledger_backlog w WHERE w.stage = ` + code.Waiting + ` AND w.kind = k.kind AND w.due_at > (SELECT now FROM clock) AND w.attempt > 0
  AND EXISTS (SELECT FROM {{S}}.ledger_items i WHERE i.kind = k.kind AND i.every IS NOT NULL) ORDER BY w.due_at, w.item_id LIMIT $2) w
 CROSS JOIN LATERAL (SELECT a.* FROM {{S}}.ledger_attempts a WHERE a.item_id = w.item_id AND a.attempt = w.attempt OFFSET 0) a
 WHERE a.period IS NOT NULL AND (a.final AND a.outcome <> ` + code.Cancelled + ` AND a.epoch = w.epoch
  OR NOT a.final AND a.outcome = ` + code.Snoozed + ` AND a.code = ` + code.PutOff + `)) over
ORDER BY k.kind`

// Counts implements ledger.Store.
func (s *Store) Counts(ctx context.Context, since time.Time) ([]stats.Counts, error) {
	return collect(ctx, s, countsTemplate, []any{since, stats.StandingCap}, func(scan scanner) (stats.Counts, error) {
		var c stats.Counts
		var oldest, putOff *time.Time
		err := scan(&c.Kind, &c.Waiting, &c.Ready, &c.Leased, &c.Dead, &c.Doubt, &oldest,
			&c.RoundsDone, &c.RoundsFailed, &c.RoundsPutOff, &putOff, &c.Done, &c.Failed)
		c.OldestReady, c.PutOffUntil = utc(oldest), utc(putOff)
		return c, err
	})
}
