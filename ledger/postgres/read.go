package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/where"
)

// filtered is the condition of a filter with its arguments, which follow those given.
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
	columns, order, scan := recordColumns, id, records()
	if q.Output {
		columns, scan = columns+`, `+outputColumn, recordsWithOutput()
	}
	if q.Desc {
		order += ` DESC`
	}
	return collect(ctx, s, `SELECT `+columns+` FROM `+from+` WHERE `+condition+` ORDER BY `+order+` LIMIT $3`, args, scan)
}

// collect reads all rows of a statement.
func collect[T any](ctx context.Context, s *Store, template string, args []any, scan func(scanner) (T, error)) ([]T, error) {
	var out []T
	err := s.read(ctx, func(ss session) (err error) {
		out, err = collectIn(ss, template, args, scan)
		return err
	})
	return out, err
}

func collectIn[T any](ss session, template string, args []any, scan func(scanner) (T, error)) ([]T, error) {
	out := []T{} // nothing is not nil, as in memory
	err := ss.query(template, args, func(row scanner) error {
		v, err := scan(row)
		out = append(out, v)
		return err
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

// Attempts implements ledger.Store.
func (s *Store) Attempts(ctx context.Context, id int64) (out []ledger.Attempt, err error) {
	err = s.read(ctx, func(ss session) (err error) {
		out, err = attempts(ss, id)
		return err
	})
	return out, err
}

func attempts(ss session, id int64) ([]ledger.Attempt, error) {
	return collectIn(ss, `SELECT `+attemptColumns+` FROM {{S}}.ledger_attempts a WHERE a.item_id = $1 ORDER BY a.attempt`, []any{id}, attemptRows())
}

// LastOutput implements ledger.Store.
func (s *Store) LastOutput(ctx context.Context, id int64) (out []byte, err error) {
	err = s.read(ctx, func(ss session) error {
		return ss.query(`SELECT a.output FROM {{S}}.ledger_attempts a WHERE a.item_id = $1 AND a.outcome IN (0, 1) ORDER BY a.attempt DESC LIMIT 1`,
			[]any{id}, func(scan scanner) error { return scan(&out) })
	})
	return out, err
}

// Kinds implements ledger.Store.
func (s *Store) Kinds(ctx context.Context) ([]ledger.Kind, error) {
	return collect(ctx, s, `SELECT `+wholeKindColumns+` FROM {{S}}.ledger_kinds k ORDER BY k.kind`, nil, func(scan scanner) (ledger.Kind, error) {
		var row wholeKindRow
		if err := scan(row.dest()...); err != nil {
			return ledger.Kind{}, err
		}
		return row.kind()
	})
}

// standingTemplate: each count is bounded and has the order of an index, so that it is not made
// by reading the whole backlog.
const standingTemplate = `WITH clock AS MATERIALIZED (SELECT {{NOW}} AS now),
due AS (SELECT count(*) AS n FROM (SELECT FROM {{S}}.ledger_backlog WHERE state = 0 AND kind = $1 AND due_at <= (SELECT now FROM clock) ORDER BY due_at, item_id LIMIT $2) x)
SELECT (SELECT now FROM clock),
 least($2::bigint, (SELECT n FROM due) + (SELECT count(*) FROM (SELECT FROM {{S}}.ledger_backlog WHERE state = 1 AND gate = 0 AND kind = $1 ORDER BY priority, due_at, item_id LIMIT $2) x) +
  (SELECT count(*) FROM (SELECT FROM {{S}}.ledger_backlog WHERE state = 1 AND gate > 0 AND blocked_on IS NULL AND kind = $1 ORDER BY priority, due_at, item_id LIMIT $2) x) +
  (SELECT count(*) FROM (SELECT FROM {{S}}.ledger_backlog WHERE passed_at IS NOT NULL AND blocked_on IS NOT NULL AND kind = $1 ORDER BY gate, passed_at, item_id LIMIT $2) x)),
 (SELECT count(*) FROM {{S}}.ledger_backlog WHERE state = 2 AND kind = $1 AND (locked_by IN (SELECT agent FROM {{S}}.ledger_agents) OR expires_at <= (SELECT now FROM clock))),
 (SELECT count(*) FROM {{S}}.ledger_backlog WHERE state = 2 AND kind = $1 AND NOT (locked_by IN (SELECT agent FROM {{S}}.ledger_agents) OR expires_at <= (SELECT now FROM clock))),
 (SELECT count(*) FROM (SELECT FROM {{S}}.ledger_backlog WHERE state = 0 AND kind = $1 AND due_at > (SELECT now FROM clock) ORDER BY due_at, item_id LIMIT $2) x),
 (SELECT due_at FROM {{S}}.ledger_backlog WHERE state = 0 AND kind = $1 AND due_at > (SELECT now FROM clock) ORDER BY due_at, item_id LIMIT 1),
 (SELECT count(*) FROM {{S}}.ledger_backlog WHERE state = 3 AND kind = $1),
 (SELECT count(*) FROM {{S}}.ledger_backlog WHERE state = 4 AND kind = $1)`

// Standing implements ledger.Store.
func (s *Store) Standing(ctx context.Context, kind string, part ledger.Shard) (out ledger.Standing, err error) {
	err = s.read(ctx, func(ss session) (err error) {
		out, err = standing(ss, kind, part)
		return err
	})
	return out, err
}

func standing(ss session, kind string, part ledger.Shard) (ledger.Standing, error) {
	var st ledger.Standing
	var next *time.Time
	of := `kind = $1`
	if part.Count > 0 {
		of += fmt.Sprintf(` AND coalesce(slot %% %d = %d, false)`, part.Count, part.Index)
	}
	err := ss.query(strings.ReplaceAll(standingTemplate, `kind = $1`, of), []any{kind, ledger.StandingCap}, func(scan scanner) error {
		return scan(&st.Now, &st.Ready, &st.Held, &st.Persons, &st.Waiting, &next, &st.Dead, &st.Doubt)
	})
	st.Now, st.NextDue = st.Now.UTC(), utc(next)
	return st, err
}

// countsTemplate counts the backlog in one pass, what waits for its next round by how the current one
// ended, and attempts by the indexes of their ends.
const countsTemplate = `WITH clock AS MATERIALIZED (SELECT {{NOW}} AS now),
b AS MATERIALIZED (SELECT kind, CASE WHEN state = 0 AND due_at <= (SELECT now FROM clock) THEN 1 ELSE state END AS state, count(*) AS n, min(due_at) AS due FROM {{S}}.ledger_backlog GROUP BY 1, 2)
SELECT k.kind, c.*, over.*,
 (SELECT count(*) FROM {{S}}.ledger_attempts a WHERE a.final AND a.kind = k.kind AND a.finished_at >= $1 AND a.outcome IN (0, 1)),
 (SELECT count(*) FROM {{S}}.ledger_attempts a WHERE a.outcome IN (2, 8) AND a.kind = k.kind AND a.finished_at >= $1)
FROM {{S}}.ledger_kinds k CROSS JOIN LATERAL (
 SELECT coalesce(sum(n) FILTER (WHERE state = 0), 0)::bigint, coalesce(sum(n) FILTER (WHERE state = 1), 0)::bigint, coalesce(sum(n) FILTER (WHERE state = 2), 0)::bigint,
  coalesce(sum(n) FILTER (WHERE state = 3), 0)::bigint, coalesce(sum(n) FILTER (WHERE state = 4), 0)::bigint, min(due) FILTER (WHERE state = 1) FROM b WHERE b.kind = k.kind) c
CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE a.outcome NOT IN (2, 7, 8)), count(*) FILTER (WHERE a.outcome IN (2, 7, 8))
 FROM (SELECT w.item_id, w.attempt, w.epoch FROM {{S}}.ledger_backlog w WHERE w.state = 0 AND w.kind = k.kind AND w.due_at > (SELECT now FROM clock) AND w.attempt > 0
  AND EXISTS (SELECT FROM {{S}}.ledger_items i WHERE i.kind = k.kind AND i.every IS NOT NULL) ORDER BY w.due_at, w.item_id LIMIT $2) w
 CROSS JOIN LATERAL (SELECT a.* FROM {{S}}.ledger_attempts a WHERE a.item_id = w.item_id AND a.attempt = w.attempt OFFSET 0) a
 WHERE a.final AND a.period IS NOT NULL AND a.outcome <> 5 AND a.epoch = w.epoch) over
ORDER BY k.kind`

// Counts implements ledger.Store.
func (s *Store) Counts(ctx context.Context, since time.Time) ([]ledger.Counts, error) {
	return collect(ctx, s, countsTemplate, []any{since, ledger.StandingCap}, func(scan scanner) (ledger.Counts, error) {
		var c ledger.Counts
		var oldest *time.Time
		err := scan(&c.Kind, &c.Waiting, &c.Ready, &c.Leased, &c.Dead, &c.Doubt, &oldest, &c.RoundsDone, &c.RoundsFailed, &c.Done, &c.Failed)
		c.OldestReady = utc(oldest)
		return c, err
	})
}

// Agents implements ledger.Store.
func (s *Store) Agents(ctx context.Context) (out []ledger.Agent, err error) {
	err = s.read(ctx, func(ss session) (err error) {
		out, err = agents(ss, living)
		return err
	})
	return out, err
}

// Journal implements ledger.Store.
func (s *Store) Journal(ctx context.Context, before int64, since time.Time, limit int) ([]ledger.JournalEntry, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	return collect(ctx, s, `SELECT id, at, actor, action, subject, detail, changed FROM {{S}}.ledger_journal WHERE id < $1 AND at >= $2 ORDER BY id DESC LIMIT $3`,
		[]any{before, since, limit}, func(scan scanner) (e ledger.JournalEntry, err error) {
			err = scan(&e.ID, &e.At, &e.Actor, &e.Action, &e.Subject, &e.Detail, &e.Changed)
			e.At = e.At.UTC()
			return e, err
		})
}

// Heartbeats implements ledger.Store.
func (s *Store) Heartbeats(ctx context.Context) (out []ledger.Agent, err error) {
	err = s.read(ctx, func(ss session) (err error) {
		out, err = agents(ss, living+` OR EXISTS (SELECT FROM {{S}}.ledger_backlog b WHERE b.state = 2 AND b.locked_by = a.agent)`)
		return err
	})
	return out, err
}

// living is the condition of heartbeats that have not run out.
const living = `a.expires_at > (SELECT {{NOW}})`

func agents(ss session, condition string) ([]ledger.Agent, error) {
	return collectIn(ss, `SELECT agent, host, pid, version, kinds, started_at, seen_at, shard_index, shard_count, clock_skew, stalled, process, configs FROM {{S}}.ledger_agents a WHERE `+condition+` ORDER BY agent`, nil,
		func(scan scanner) (ledger.Agent, error) {
			var a ledger.Agent
			var kinds, stalled, configs string
			var skew int64
			if err := scan(&a.Name, &a.Host, &a.PID, &a.Version, &kinds, &a.StartedAt, &a.SeenAt, &a.Shard.Index, &a.Shard.Count, &skew, &stalled, &a.Process, &configs); err != nil {
				return a, err
			}
			a.Skew = time.Duration(skew) * time.Microsecond
			a.StartedAt, a.SeenAt = a.StartedAt.UTC(), a.SeenAt.UTC()
			return a, errors.Join(json.Unmarshal([]byte(kinds), &a.Kinds), json.Unmarshal([]byte(stalled), &a.Stalled), json.Unmarshal([]byte(configs), &a.Configs))
		})
}
