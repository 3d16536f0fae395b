package sqlite

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/code"
	"github.com/ledgerd/ledgerd/ledger/internal/where"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// newest joins the newest ended attempt a of item i.
const newest = `ledger_attempts a ON a.item_id = i.id AND a.attempt = (SELECT max(attempt) FROM ledger_attempts WHERE item_id = i.id)`

// bounded returns the condition that a column of ids is between ?2 and ?3. If an index leads to the rows and the filter
// has no bounds, it is empty: a condition that is always true makes the planner avoid the index.
func bounded(f ledger.Filter, from, id string) (condition string, above, upTo int64) {
	above, upTo = f.Bounds()
	byID := strings.Contains(from, "NOT INDEXED")
	if byID || above > 0 {
		condition += id + " > ?2 AND "
	}
	if byID || upTo < math.MaxInt64 {
		condition += id + " <= ?3 AND "
	}
	return condition, above, upTo
}

// itemsFrom returns the FROM clause for a filter, without the newest attempt, and the column of the id for ORDER BY.
// The planner does not know how many rows there are, so the clause fixes the order of the joins. The few stuck or
// leased items come by their index, unfinished items from the backlog, named keys by their index, all others in the
// order of ids.
func itemsFrom(f ledger.Filter) (from, id string) {
	backlog := func(hint, condition string) (from, id string) {
		return ` FROM ledger_backlog b ` + hint + ` CROSS JOIN ledger_items i ON i.id = b.item_id` + condition, `b.item_id`
	}
	items := func(hint string) (from, id string) {
		return ` FROM ledger_items i ` + hint + ` LEFT JOIN ledger_backlog b ON b.item_id = i.id`, `i.id`
	}
	has := func(some func(p ledger.Filter) bool) bool { return slices.ContainsFunc(f.Parts(), some) }
	byKind := has(func(p ledger.Filter) bool { return len(p.Kinds) > 0 })
	byScope := has(func(p ledger.Filter) bool { return len(p.Scopes) > 0 })
	byPrefix := has(func(p ledger.Filter) bool { return p.Prefix != "" })
	switch {
	case has(func(p ledger.Filter) bool { return p.IDs != nil }):
		return items("")
	case f.Only(ledger.StateDead, ledger.StateDoubt):
		return backlog("INDEXED BY ledger_backlog_stuck", " AND b.state >= "+code.Dead)
	case where.Held(f):
		return backlog("INDEXED BY ledger_backlog_leased", " AND b.state = "+code.Leased)
	case f.NamesItems():
		return items("INDEXED BY sqlite_autoindex_ledger_items_1") // statistics of few items suggest to scan them
	case byKind && byScope && byPrefix:
		return items("")
	case where.Unfinished(f):
		return backlog("NOT INDEXED", "")
	}
	return items("NOT INDEXED")
}

// Records implements ledger.Store.
func (s *Store) Records(ctx context.Context, q ledger.RecordQuery) (recs []ledger.Record, err error) {
	err = s.read(ctx, true, func(r session) error {
		f := q.Filter
		from, id := itemsFrom(f)
		between, above, upTo := bounded(f, from, id)
		matches, args := where.Build(f, where.SQLite, "?1", []any{s.clock(), above, upTo, q.Limit})
		order := id
		if q.Desc {
			order += " DESC"
		}
		recs, err = records(r, `SELECT `+recordColumns+from+` LEFT JOIN `+newest+` WHERE `+between+matches+` ORDER BY `+order+
			` LIMIT ?4`, args...)
		if err != nil || !q.Output {
			return err
		}
		return addOutputs(r, recs)
	})
	return recs, err
}

// addOutputs adds to each record the output of the newest attempt that has one.
func addOutputs(s session, recs []ledger.Record) error {
	at := make(map[int64]*ledger.Record, len(recs))
	for i := range recs {
		at[recs[i].ID] = &recs[i]
	}
	return s.query(
		`SELECT j.value, (SELECT output FROM ledger_attempts WHERE item_id = j.value AND length(output) > 0 ORDER BY attempt DESC LIMIT 1) FROM json_each(?1) j`, func(r row) error {
			at[r.int(0)].Output = r.bytes(1)
			return nil
		}, array(recordIDs(recs)))
}

// Count implements ledger.Store.
func (s *Store) Count(ctx context.Context, f ledger.Filter) (n int64, err error) {
	err = s.read(ctx, true, func(r session) error {
		from, id := itemsFrom(f)
		between, above, upTo := bounded(f, from, id)
		matches, args := where.Build(f, where.SQLite, "?1", []any{s.clock(), above, upTo})
		return r.query(`SELECT count(*)`+from+` LEFT JOIN `+newest+` WHERE `+between+matches, func(r row) error {
			n = r.int(0)
			return nil
		}, args...)
	})
	return n, err
}

// Now implements ledger.Store.
func (s *Store) Now(context.Context) (time.Time, error) { return s.clock(), nil }

// Standing implements ledger.Store.
func (s *Store) Standing(ctx context.Context, kind string, part scheduler.Shard) (st stats.Standing, err error) {
	err = s.read(ctx, true, func(r session) (err error) {
		st, err = standing(r, kind, part, s.clock())
		return err
	})
	return st, err
}

func standing(s session, kind string, part scheduler.Shard, now time.Time) (stats.Standing, error) {
	st := stats.Standing{Now: now}
	of := `kind = ?1`
	if part.Count > 0 {
		of += fmt.Sprintf(` AND slot %% %d = %d`, part.Count, part.Index)
	}
	err := s.query(`SELECT
 (SELECT count(*) FROM (SELECT 1 FROM ledger_backlog WHERE state = `+code.Ready+` AND gate = `+code.Free+` AND `+of+` LIMIT ?3)) +
 (SELECT count(*) FROM (SELECT 1 FROM ledger_backlog WHERE limit_key IS NOT NULL AND lock_id IS NULL AND `+of+` LIMIT ?3)),
 (SELECT count(*) FROM (SELECT 1 FROM ledger_backlog WHERE state = `+code.Waiting+` AND `+of+` AND due_at <= ?2 LIMIT ?3)),
 (SELECT count(*) FROM (SELECT 1 FROM ledger_backlog WHERE state = `+code.Waiting+` AND `+of+` AND due_at > ?2 LIMIT ?3)),
 (SELECT min(due_at) FROM ledger_backlog WHERE state = `+code.Waiting+` AND `+of+` AND due_at > ?2),
 (SELECT count(*) FROM ledger_backlog WHERE state >= `+code.Dead+` AND state = `+code.Dead+` AND `+of+`),
 (SELECT count(*) FROM ledger_backlog WHERE state >= `+code.Dead+` AND state = `+code.Doubt+` AND `+of+`)`, func(r row) error {
		st.Ready, st.Waiting, st.NextDue = min(r.int(0)+r.int(1), stats.StandingCap), r.int(2), r.time(3)
		st.Dead, st.Doubt = r.int(4), r.int(5)
		return nil
	}, kind, now, stats.StandingCap)
	if err != nil {
		return st, err
	}
	err = s.query(
		`SELECT count(iif(a.agent IS NOT NULL OR b.expires_at <= ?2, 1, NULL)), count(iif(a.agent IS NULL AND b.expires_at > ?2, 1, NULL))
 FROM ledger_backlog b LEFT JOIN ledger_agents a ON a.agent = b.locked_by WHERE b.state = `+code.Leased+` AND b.`+of, func(r row) error {
			st.Held, st.Persons = r.int(0), r.int(1)
			return nil
		}, kind, now)
	return st, err
}

// Counts implements ledger.Store.
func (s *Store) Counts(ctx context.Context, since time.Time) ([]stats.Counts, error) {
	all := []stats.Counts{}
	err := s.read(ctx, true, func(r session) error {
		err := r.query(`SELECT k.kind,
 (SELECT count(*) FROM ledger_backlog WHERE state = `+code.Waiting+` AND kind = k.kind AND due_at > ?1),
 (SELECT count(*) FROM ledger_backlog WHERE state = `+code.Waiting+` AND kind = k.kind AND due_at <= ?1) + (SELECT count(*) FROM ledger_backlog WHERE state = `+code.Ready+` AND gate = `+code.Free+` AND kind = k.kind) +
  (SELECT count(*) FROM ledger_backlog WHERE limit_key IS NOT NULL AND lock_id IS NULL AND kind = k.kind),
 (SELECT count(*) FROM ledger_backlog WHERE state = `+code.Leased+` AND kind = k.kind),
 (SELECT count(*) FROM ledger_backlog WHERE state >= `+code.Dead+` AND state = `+code.Dead+` AND kind = k.kind),
 (SELECT count(*) FROM ledger_backlog WHERE state >= `+code.Dead+` AND state = `+code.Doubt+` AND kind = k.kind),
 (SELECT min(due_at) FROM ledger_backlog WHERE state = `+code.Waiting+` AND kind = k.kind AND due_at <= ?1),
 (SELECT min((SELECT min(due_at) FROM ledger_backlog WHERE state = `+code.Ready+` AND gate = `+code.Free+` AND kind = k.kind AND priority = p.column1)) FROM (VALUES (-2), (-1), (0), (1), (2)) p),
 (SELECT min(due_at) FROM ledger_backlog WHERE limit_key IS NOT NULL AND lock_id IS NULL AND kind = k.kind),
 (SELECT count(*) FROM ledger_attempts WHERE final = 1 AND kind = k.kind AND finished_at >= ?2 AND outcome IN `+code.Completed+`),
 (SELECT count(*) FROM ledger_attempts WHERE outcome IN `+code.Failures+` AND kind = k.kind AND finished_at >= ?2)
 FROM ledger_kinds k ORDER BY k.kind`, func(r row) error {
			c := stats.Counts{Kind: r.text(0), Waiting: r.int(1), Ready: r.int(2), Leased: r.int(3), Dead: r.int(4),
				Doubt: r.int(5), OldestReady: r.time(6), Done: r.int(9), Failed: r.int(10)}
			for i := 7; i < 9; i++ {
				if t := r.time(i); !t.IsZero() && (c.OldestReady.IsZero() || t.Before(c.OldestReady)) {
					c.OldestReady = t
				}
			}
			all = append(all, c)
			return nil
		}, s.clock(), since.UnixMicro())
		for i := 0; i < len(all) && err == nil; i++ {
			err = r.query(roundsOver, func(r row) error {
				all[i].RoundsDone, all[i].RoundsFailed, all[i].RoundsPutOff = r.int(0), r.int(1), r.int(2)
				all[i].PutOffUntil = r.time(3)
				return nil
			}, all[i].Kind, s.clock(), stats.StandingCap)
		}
		return err
	})
	return all, err
}

// roundsOver counts the items that wait for the next round, by how the current one ended, and the items put off.
const roundsOver = `SELECT count(iif(a.final = 1 AND a.outcome NOT IN ` + code.GaveUp + `, 1, NULL)),
 count(iif(a.final = 1 AND a.outcome IN ` + code.GaveUp + `, 1, NULL)), count(iif(a.final = 0, 1, NULL)), max(iif(a.final = 0, w.due_at, NULL))
 FROM (SELECT item_id, attempt, epoch, due_at FROM ledger_backlog INDEXED BY ledger_backlog_waiting WHERE state = ` + code.Waiting + ` AND kind = ?1 AND due_at > ?2 AND attempt > 0
  AND EXISTS (SELECT 1 FROM ledger_items INDEXED BY ledger_items_recurring WHERE kind = ?1 AND every IS NOT NULL) LIMIT ?3) w
 CROSS JOIN ledger_attempts a ON a.item_id = w.item_id AND a.attempt = w.attempt WHERE a.period IS NOT NULL AND
 (a.final = 1 AND a.outcome <> ` + code.Cancelled + ` AND a.epoch = w.epoch OR a.final = 0 AND a.outcome = ` + code.Snoozed + ` AND a.code = ` + code.PutOff + `)`
