package sqlite

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/where"
)

// newest is the newest ended attempt a of item i, for joins.
const newest = `ledger_attempts a ON a.item_id = i.id AND a.attempt = (SELECT max(attempt) FROM ledger_attempts WHERE item_id = i.id)`

// bounded is the condition that a column of ids is between ?2 and ?3. Where an index leads to rows it is only there
// if the filter has such bounds: one that is always true would lead the planner away from the index.
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

// parts are all filters that must match for f to match.
func parts(f ledger.Filter) []ledger.Filter {
	all := []ledger.Filter{f}
	for _, g := range f.Also {
		all = append(all, parts(g)...)
	}
	return all
}

// of returns the rows that a filter is about, as a FROM without the newest attempt, and the
// column that orders them by id. The planner knows nothing of how many rows there are, so it
// states what comes first: what is stuck or leased, which is little, by its index; what is
// open, from the backlog; one key, by its index; all else, item by item in the order of ids.
func of(f ledger.Filter) (from, id string) {
	backlog := func(hint, condition string) (from, id string) {
		return ` FROM ledger_backlog b ` + hint + ` CROSS JOIN ledger_items i ON i.id = b.item_id` + condition, `b.item_id`
	}
	items := func(hint string) (from, id string) {
		return ` FROM ledger_items i ` + hint + ` LEFT JOIN ledger_backlog b ON b.item_id = i.id`, `i.id`
	}
	has := func(some func(p ledger.Filter) bool) bool { return slices.ContainsFunc(parts(f), some) }
	only := func(states ...ledger.State) bool {
		return has(func(p ledger.Filter) bool {
			return len(p.States) > 0 && !slices.ContainsFunc(p.States, func(st ledger.State) bool { return !slices.Contains(states, st) })
		})
	}
	unfinished := has(func(p ledger.Filter) bool {
		return len(p.Rounds) > 0 && !slices.Contains(p.Rounds, ledger.RoundDone) && !slices.Contains(p.Rounds, ledger.RoundCancelled)
	})
	kind := has(func(p ledger.Filter) bool { return len(p.Kinds) > 0 })
	scope := has(func(p ledger.Filter) bool { return len(p.Scopes) > 0 })
	switch {
	case has(func(p ledger.Filter) bool { return p.IDs != nil }):
		return items("")
	case only(ledger.StateDead, ledger.StateDoubt):
		return backlog("INDEXED BY ledger_backlog_stuck", " AND b.state >= 3")
	case only(ledger.StateLeased), has(func(p ledger.Filter) bool { return len(p.Agents) > 0 && !slices.Contains(p.Agents, "") }):
		return backlog("INDEXED BY ledger_backlog_leased", " AND b.state = 2")
	case kind && has(func(p ledger.Filter) bool { return p.Key != "" }):
		return items("INDEXED BY sqlite_autoindex_ledger_items_1") // statistics of few items suggest to scan them
	case kind && scope && has(func(p ledger.Filter) bool { return p.Prefix != "" }):
		return items("")
	case only(states...), unfinished, has(func(p ledger.Filter) bool { return len(p.Priorities) > 0 }):
		return backlog("NOT INDEXED", "")
	}
	return items("NOT INDEXED")
}

// narrow names all kinds in a filter by key that names none: the index of identities begins
// with the kind.
func narrow(s session, f ledger.Filter) (ledger.Filter, error) {
	key, kind := false, false
	for _, p := range parts(f) {
		key, kind = key || p.Key != "", kind || len(p.Kinds) > 0
	}
	if !key || kind {
		return f, nil
	}
	all, err := kinds(s)
	var names []string
	for _, k := range all {
		names = append(names, k.Name)
	}
	return f.And(ledger.Filter{Kinds: names}), err
}

// Records implements ledger.Store.
func (s *Store) Records(ctx context.Context, q ledger.RecordQuery) (recs []ledger.Record, err error) {
	err = s.read(ctx, true, func(r session) error {
		f, err := narrow(r, q.Filter)
		if err != nil {
			return err
		}
		from, id := of(f)
		between, above, upTo := bounded(f, from, id)
		matches, args := where.Build(f, where.SQLite, "?1", []any{s.clock(), above, upTo, q.Limit})
		order := id
		if q.Desc {
			order += " DESC"
		}
		recs, err = records(r, `SELECT `+recordColumns+from+` LEFT JOIN `+newest+` WHERE `+between+matches+` ORDER BY `+order+` LIMIT ?4`, args...)
		if err != nil || !q.Output {
			return err
		}
		return addOutputs(r, recs)
	})
	return recs, err
}

// addOutputs reads of each record the output of the newest attempt that has one.
func addOutputs(s session, recs []ledger.Record) error {
	at := make(map[int64]*ledger.Record, len(recs))
	for i := range recs {
		at[recs[i].ID] = &recs[i]
	}
	return s.query(`SELECT j.value, (SELECT output FROM ledger_attempts WHERE item_id = j.value AND length(output) > 0 ORDER BY attempt DESC LIMIT 1) FROM json_each(?1) j`, func(r row) error {
		at[r.int(0)].Output = r.bytes(1)
		return nil
	}, array(recordIDs(recs)))
}

// Count implements ledger.Store.
func (s *Store) Count(ctx context.Context, f ledger.Filter) (n int64, err error) {
	err = s.read(ctx, true, func(r session) error {
		f, err := narrow(r, f)
		if err != nil {
			return err
		}
		from, id := of(f)
		between, above, upTo := bounded(f, from, id)
		matches, args := where.Build(f, where.SQLite, "?1", []any{s.clock(), above, upTo})
		return r.query(`SELECT count(*)`+from+` LEFT JOIN `+newest+` WHERE `+between+matches, func(r row) error {
			n = r.int(0)
			return nil
		}, args...)
	})
	return n, err
}

// Attempts implements ledger.Store.
func (s *Store) Attempts(ctx context.Context, id int64) (all []ledger.Attempt, err error) {
	err = s.read(ctx, false, func(r session) (err error) {
		all, err = attempts(r, []int64{id})
		return err
	})
	return all, err
}

// LastOutput implements ledger.Store.
func (s *Store) LastOutput(ctx context.Context, id int64) (out []byte, err error) {
	err = s.read(ctx, false, func(r session) error {
		return r.query(`SELECT output FROM ledger_attempts WHERE item_id = ?1 AND outcome IN (0, 1) ORDER BY attempt DESC LIMIT 1`, func(r row) error {
			out = r.bytes(0)
			return nil
		}, id)
	})
	return out, err
}

// Kinds implements ledger.Store.
func (s *Store) Kinds(ctx context.Context) (all []ledger.Kind, err error) {
	err = s.read(ctx, false, func(r session) (err error) {
		all, err = kinds(r)
		return err
	})
	return all, err
}

// Now implements ledger.Store.
func (s *Store) Now(context.Context) (time.Time, error) { return s.clock(), nil }

// Standing implements ledger.Store.
func (s *Store) Standing(ctx context.Context, kind string, part ledger.Shard) (st ledger.Standing, err error) {
	err = s.read(ctx, true, func(r session) (err error) {
		st, err = standing(r, kind, part, s.clock())
		return err
	})
	return st, err
}

func standing(s session, kind string, part ledger.Shard, now time.Time) (ledger.Standing, error) {
	st := ledger.Standing{Now: now}
	of := `kind = ?1`
	if part.Count > 0 {
		of += fmt.Sprintf(` AND slot %% %d = %d`, part.Count, part.Index)
	}
	err := s.query(`SELECT
 (SELECT count(*) FROM (SELECT 1 FROM ledger_backlog WHERE state = 1 AND gate = 0 AND `+of+` LIMIT ?3)) +
 (SELECT count(*) FROM (SELECT 1 FROM ledger_backlog WHERE state = 1 AND gate > 0 AND blocked_on IS NULL AND `+of+` LIMIT ?3)) +
 (SELECT count(*) FROM (SELECT 1 FROM ledger_backlog WHERE passed_at IS NOT NULL AND blocked_on IS NOT NULL AND `+of+` LIMIT ?3)),
 (SELECT count(*) FROM (SELECT 1 FROM ledger_backlog WHERE state = 0 AND `+of+` AND due_at <= ?2 LIMIT ?3)),
 (SELECT count(*) FROM (SELECT 1 FROM ledger_backlog WHERE state = 0 AND `+of+` AND due_at > ?2 LIMIT ?3)),
 (SELECT min(due_at) FROM ledger_backlog WHERE state = 0 AND `+of+` AND due_at > ?2),
 (SELECT count(*) FROM ledger_backlog WHERE state >= 3 AND state = 3 AND `+of+`),
 (SELECT count(*) FROM ledger_backlog WHERE state >= 3 AND state = 4 AND `+of+`)`, func(r row) error {
		st.Ready, st.Waiting, st.NextDue = min(r.int(0)+r.int(1), ledger.StandingCap), r.int(2), r.time(3)
		st.Dead, st.Doubt = r.int(4), r.int(5)
		return nil
	}, kind, now, ledger.StandingCap)
	if err != nil {
		return st, err
	}
	err = s.query(`SELECT count(iif(a.agent IS NOT NULL OR b.expires_at <= ?2, 1, NULL)), count(iif(a.agent IS NULL AND b.expires_at > ?2, 1, NULL))
 FROM ledger_backlog b LEFT JOIN ledger_agents a ON a.agent = b.locked_by WHERE b.state = 2 AND b.`+of, func(r row) error {
		st.Held, st.Persons = r.int(0), r.int(1)
		return nil
	}, kind, now)
	return st, err
}

// Counts implements ledger.Store.
func (s *Store) Counts(ctx context.Context, since time.Time) ([]ledger.Counts, error) {
	all := []ledger.Counts{}
	err := s.read(ctx, true, func(r session) error {
		err := r.query(`SELECT k.kind,
 (SELECT count(*) FROM ledger_backlog WHERE state = 0 AND kind = k.kind AND due_at > ?1),
 (SELECT count(*) FROM ledger_backlog WHERE state = 0 AND kind = k.kind AND due_at <= ?1) + (SELECT count(*) FROM ledger_backlog WHERE state = 1 AND gate = 0 AND kind = k.kind) +
  (SELECT count(*) FROM ledger_backlog WHERE state = 1 AND gate > 0 AND blocked_on IS NULL AND kind = k.kind) + (SELECT count(*) FROM ledger_backlog WHERE passed_at IS NOT NULL AND blocked_on IS NOT NULL AND kind = k.kind),
 (SELECT count(*) FROM ledger_backlog WHERE state = 2 AND kind = k.kind),
 (SELECT count(*) FROM ledger_backlog WHERE state >= 3 AND state = 3 AND kind = k.kind),
 (SELECT count(*) FROM ledger_backlog WHERE state >= 3 AND state = 4 AND kind = k.kind),
 (SELECT min(due_at) FROM ledger_backlog WHERE state = 0 AND kind = k.kind AND due_at <= ?1),
 (SELECT min((SELECT min(due_at) FROM ledger_backlog WHERE state = 1 AND gate = 0 AND kind = k.kind AND priority = p.column1)) FROM (VALUES (-2), (-1), (0), (1), (2)) p),
 (SELECT min((SELECT min(due_at) FROM ledger_backlog WHERE state = 1 AND gate > 0 AND blocked_on IS NULL AND kind = k.kind AND priority = p.column1)) FROM (VALUES (-2), (-1), (0), (1), (2)) p),
 (SELECT min(due_at) FROM ledger_backlog WHERE passed_at IS NOT NULL AND blocked_on IS NOT NULL AND kind = k.kind),
 (SELECT count(*) FROM ledger_attempts WHERE final = 1 AND kind = k.kind AND finished_at >= ?2 AND outcome IN (0, 1)),
 (SELECT count(*) FROM ledger_attempts WHERE outcome IN (2, 8) AND kind = k.kind AND finished_at >= ?2)
 FROM ledger_kinds k ORDER BY k.kind`, func(r row) error {
			c := ledger.Counts{Kind: r.text(0), Waiting: r.int(1), Ready: r.int(2), Leased: r.int(3), Dead: r.int(4), Doubt: r.int(5),
				OldestReady: r.time(6), Done: r.int(10), Failed: r.int(11)}
			for i := 7; i < 10; i++ {
				if t := r.time(i); !t.IsZero() && (c.OldestReady.IsZero() || t.Before(c.OldestReady)) {
					c.OldestReady = t
				}
			}
			all = append(all, c)
			return nil
		}, s.clock(), since.UnixMicro())
		for i := 0; i < len(all) && err == nil; i++ {
			err = r.query(roundsOver, func(r row) error {
				all[i].RoundsDone, all[i].RoundsFailed = r.int(0), r.int(1)
				return nil
			}, all[i].Kind, s.clock(), ledger.StandingCap)
		}
		return err
	})
	return all, err
}

// roundsOver counts what waits for the next round, by how the current one ended.
const roundsOver = `SELECT count(iif(a.outcome NOT IN (2, 7, 8), 1, NULL)), count(iif(a.outcome IN (2, 7, 8), 1, NULL))
 FROM (SELECT item_id, attempt, epoch FROM ledger_backlog INDEXED BY ledger_backlog_waiting WHERE state = 0 AND kind = ?1 AND due_at > ?2 AND attempt > 0
  AND EXISTS (SELECT 1 FROM ledger_items INDEXED BY ledger_items_recurring WHERE kind = ?1 AND every IS NOT NULL) LIMIT ?3) w
 CROSS JOIN ledger_attempts a ON a.item_id = w.item_id AND a.attempt = w.attempt WHERE a.final = 1 AND a.period IS NOT NULL AND a.outcome <> 5 AND a.epoch = w.epoch`

// Audit implements ledger.Store.
func (s *Store) Audit(ctx context.Context, after int64, limit int) (all []ledger.Audited, err error) {
	err = s.read(ctx, true, func(r session) error {
		recs, err := records(r, `SELECT `+recordColumns+` FROM ledger_items i LEFT JOIN ledger_backlog b ON b.item_id = i.id
 WHERE i.id > ?1 ORDER BY i.id LIMIT ?2`, after, limit)
		if err != nil {
			return err
		}
		ended, err := attempts(r, recordIDs(recs))
		if err != nil {
			return err
		}
		held, err := heldBy(r, recordIDs(recs))
		if err != nil {
			return err
		}
		all = make([]ledger.Audited, len(recs))
		for i := range recs {
			n := 0
			for n < len(ended) && ended[n].ItemID == recs[i].ID {
				n++
			}
			all[i].Record, all[i].Held = recs[i], held[recs[i].ID]
			if n > 0 {
				all[i].Attempts = ended[:n:n]
			}
			ended = ended[n:]
		}
		return nil
	})
	return all, err
}

// Orphans implements ledger.Store.
func (s *Store) Orphans(ctx context.Context, limit int) (o ledger.Orphans, err error) {
	list := func(r session, rows string) (ids []int64, err error) {
		err = r.query(`SELECT DISTINCT item_id FROM `+rows+` ORDER BY item_id LIMIT ?1`, func(r row) error {
			ids = append(ids, r.int(0))
			return nil
		}, limit)
		return ids, err
	}
	const noItem = ` t WHERE NOT EXISTS (SELECT 1 FROM ledger_items i WHERE i.id = t.item_id)`
	err = s.read(ctx, true, func(r session) error {
		if o.Backlog, err = list(r, "ledger_backlog"+noItem); err != nil {
			return err
		}
		if o.Attempts, err = list(r, "ledger_attempts"+noItem); err != nil {
			return err
		}
		if o.Held, err = list(r, `ledger_held t WHERE NOT EXISTS (SELECT 1 FROM ledger_backlog b WHERE b.item_id = t.item_id AND b.lock_id = t.lock_id)`); err != nil {
			return err
		}
		if o.Beyond, err = list(r, beyondLimits); err != nil {
			return err
		}
		o.Misfiled, err = list(r, `ledger_backlog t JOIN ledger_items i ON i.id = t.item_id JOIN ledger_kinds k ON k.kind = t.kind
 WHERE t.limit_key IS NOT NULL AND (k.laned = 0 OR t.limit_key NOT IN ('', coalesce(i.shard_key, i.key)))`)
		return err
	})
	return o, err
}

// beyondLimits is what is leased beyond the limits of its kind, the newest of what was leased since they are what they are.
const beyondLimits = `(SELECT item_id, kind, limits, row_number() OVER (PARTITION BY kind ORDER BY leased_at, item_id) AS of_kind,
  row_number() OVER (PARTITION BY kind, shard_key ORDER BY leased_at, item_id) AS of_key
 FROM (SELECT b.item_id, b.kind, b.leased_at, k.limits, coalesce(i.shard_key, i.key) AS shard_key
  FROM ledger_backlog b JOIN ledger_kinds k ON k.kind = b.kind JOIN ledger_items i ON i.id = b.item_id WHERE b.state = 2 AND b.gate = 1 AND b.limit_key IS NOT NULL AND k.limits <> ''))
 WHERE of_kind > json_extract(limits, '$.max_running') OR of_key > json_extract(limits, '$.max_running_per_shard_key')`
