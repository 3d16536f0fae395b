package sqlite

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/code"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// Items that need resources. An item that a claim passed over is laid aside: blocked_on names the resource,
// and it is not looked at again until somebody frees that. See scheduler.Claim.Pick for the rule.

const (
	// examined is how many items that need resources one round of a claim looks at, at least.
	examined = 100
	// wakes is how many of each kind that wait for a resource are looked at again when it is free: the
	// first in order gets it, and the others are there in case that it needs something else.
	wakes = 4
)

// gateOf is the gate of an item by its resources.
const gateOf = `min(coalesce(json_array_length(resources), 0), ` + code.SeveralResources + `)`

const (
	freeOf = ` FROM ledger_backlog b INDEXED BY ledger_backlog_ready WHERE b.state = ` + code.Ready +
		` AND b.gate = ` + code.NoResource
	gatedOf        = ` FROM ledger_backlog b INDEXED BY ledger_backlog_gated CROSS JOIN ledger_items i ON i.id = b.item_id WHERE b.state = ` + code.Ready + ` AND b.gate > ` + code.NoResource + ` AND b.blocked_on IS NULL`
	claimableOf    = ` AND b.kind = ?1 AND NOT coalesce((SELECT paused FROM ledger_kinds WHERE kind = ?1), 0) AND b.slot % ?3 = ?2 ORDER BY b.priority, b.due_at, b.item_id LIMIT ?4`
	candidateOf    = `SELECT b.item_id, b.priority, b.due_at, b.slot, b.alone`
	gatedColumns   = `, b.passed_at, b.blocked_on, i.resources, (SELECT json_group_array(h.resource) FROM json_each(i.resources) j CROSS JOIN ledger_held h ON h.resource = j.value)`
	selectFree     = candidateOf + freeOf + claimableOf
	selectGated    = candidateOf + gatedColumns + gatedOf + claimableOf
	selectReserver = candidateOf + gatedColumns + `, r.item_id, r.kind, r.until
 FROM ledger_reserver r LEFT JOIN ledger_backlog b ON b.item_id = r.item_id AND b.state = ` + code.Ready + ` AND b.gate = ` + code.SeveralResources + `
  AND NOT coalesce((SELECT paused FROM ledger_kinds WHERE kind = b.kind), 0) LEFT JOIN ledger_items i ON i.id = b.item_id`
)

// names are those in a column.
func names(r row, i int) (list []string) {
	if text := r.text(i); text != "" && json.Unmarshal([]byte(text), &list) != nil {
		return []string{text} // somebody has written it past the ledger
	}
	return list
}

func scanCandidate(r row) scheduler.Candidate {
	return scheduler.Candidate{ID: r.int(0), Priority: int16(r.int(1)), Due: r.time(2), Slot: int(r.int(3)),
		Alone: r.bool(4)}
}

func scanGated(r row) scheduler.Candidate {
	c := scanCandidate(r)
	c.PassedAt, c.BlockedOn, c.Resources, c.Taken = r.time(5), r.text(6), names(r, 7), names(r, 8)
	return c
}

// someGated reports whether a claim of a kind that has items that need resources, and is not paused, may
// find one.
func (s *Store) someGated(r session, kind string) (bool, error) {
	queries := []string{
		`SELECT 1 FROM ledger_backlog WHERE state = ` + code.Ready + ` AND gate > ` + code.NoResource +
			` AND blocked_on IS NULL AND kind = ?1`,
		`SELECT 1 FROM ledger_reserver WHERE item_id > 0 AND kind = ?1`,
	}
	if s.sweeps.Due(s.clock()) {
		queries = append(queries,
			`SELECT 1 FROM ledger_backlog WHERE passed_at IS NOT NULL AND blocked_on IS NOT NULL AND kind = ?1`)
	}
	for _, q := range queries {
		if some, err := exists(r, q, kind); err != nil || some {
			return some, err
		}
	}
	return false, nil
}

// claimGated is claim of a kind that has items that need resources. If it leased none, more tells
// whether there is more to look at.
func (s *Store) claimGated(t *turn, g ledger.Grant) (recs []ledger.Record, more bool, err error) {
	var held []ledger.Record
	if g.Resume {
		if held, err = resume(t, g, t.now.Add(g.TTL)); err != nil {
			return nil, false, err
		}
	}
	if s.sweeps.Due(t.now) {
		if err := s.sweep(t); err != nil {
			return nil, false, err
		}
	}
	p, more, err := choose(t, g, g.Limit-len(held))
	if err != nil {
		return nil, false, err
	}
	if err := s.book(t, g, p); err != nil || len(p.Granted) == 0 {
		return held, more, err
	}
	slices.Sort(p.Granted)
	recs, err = load(t, p.Granted)
	slices.SortFunc(recs, compareClaimed)
	return append(held, recs...), false, err
}

// choose describes what a claim leases; more: there are items that it has not come upon.
func choose(t *turn, g ledger.Grant, limit int) (p scheduler.Pick, more bool, err error) {
	index, count := shard(g)
	var candidates []scheduler.Candidate
	err = t.query(selectFree, func(r row) error {
		candidates = append(candidates, scanCandidate(r))
		return nil
	}, g.Kind, index, count, limit)
	if err != nil {
		return p, false, err
	}
	most, gated := max(limit, examined), 0
	var last scheduler.Candidate
	err = t.query(selectGated, func(r row) error {
		last = scanGated(r)
		candidates = append(candidates, last)
		gated++
		return nil
	}, g.Kind, index, count, most)
	if err != nil {
		return p, false, err
	}
	if more = gated == most; more { // what comes after those may come after others, too
		candidates = slices.DeleteFunc(candidates, func(c scheduler.Candidate) bool {
			return scheduler.Compare(c, last) > 0
		})
	}
	slices.SortFunc(candidates, scheduler.Compare)
	var reserver scheduler.Reserver
	err = t.query(selectReserver, func(r row) error {
		reserver = scheduler.Reserver{ItemID: r.int(9), Kind: r.text(10), Until: r.time(11)}
		if r[0] != nil {
			c := scanGated(r)
			reserver.Item = &c
		}
		return nil
	})
	if err != nil {
		return p, false, err
	}
	claim := scheduler.Claim{Kind: g.Kind, Shard: g.Shard, Limit: limit}
	return claim.Pick(t.now, candidates, reserver), more, nil
}

var (
	insertHeld = newBulk(`INSERT INTO ledger_held (resource, item_id, lock_id, since)`, 4, ``)
	park       = newBulk(`UPDATE ledger_backlog SET blocked_on = v.column2, passed_at = v.column3 FROM (`, 3,
		`) v WHERE item_id = v.column1`)
)

// stamp leases items.
func (s *Store) stamp(t *turn, g ledger.Grant, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := t.exec(`UPDATE ledger_backlog SET state = `+code.Leased+
		`, attempt = attempt + 1, locked_by = ?2, lock_id = ?3, leased_at = ?4, expires_at = ?5, blocked_on = NULL, passed_at = NULL
 WHERE item_id IN (SELECT value FROM json_each(?1))`, array(ids), g.Agent, g.LockID, t.now, t.now.Add(g.TTL))
	return err
}

// book writes what a claim chose.
func (s *Store) book(t *turn, g ledger.Grant, p scheduler.Pick) error {
	if err := s.stamp(t, g, p.Granted); err != nil {
		return err
	}
	err := insertHeld.exec(t, len(p.Taken), func(list []any, i int) []any {
		return append(list, p.Taken[i].Resource, p.Taken[i].ItemID, g.LockID, t.now)
	})
	if err != nil {
		return err
	}
	err = park.exec(t, len(p.Parked), func(list []any, i int) []any {
		return append(list, p.Parked[i].ItemID, p.Parked[i].Resource, p.Parked[i].Since)
	})
	if err != nil {
		return err
	}
	if r := p.Reserver; r != nil {
		_, err = t.exec(`UPDATE ledger_reserver SET item_id = ?1, kind = ?2, until = ?3`, r.ItemID, r.Kind, r.Until)
	}
	if !p.Appoint.IsZero() && err == nil {
		index, count := shard(g)
		_, err = t.exec(`UPDATE ledger_reserver SET item_id = b.item_id, kind = b.kind, until = ?4 FROM (
 SELECT item_id, kind FROM ledger_backlog INDEXED BY ledger_backlog_passed WHERE passed_at IS NOT NULL AND kind = ?1 AND gate = `+code.SeveralResources+` AND slot % ?3 = ?2
 ORDER BY passed_at, item_id LIMIT 1) b`, g.Kind, index, count, p.Appoint)
	}
	return err
}

// sweep wakes those who wait for a resource that is free: whoever freed it has overlooked them.
func (s *Store) sweep(t *turn) error {
	start := time.Now()
	var free []string
	err := t.query(`WITH RECURSIVE waited(name) AS (
 SELECT min(blocked_on) FROM ledger_backlog WHERE blocked_on IS NOT NULL UNION ALL
 SELECT (SELECT min(blocked_on) FROM ledger_backlog WHERE blocked_on IS NOT NULL AND blocked_on > name) FROM waited WHERE name IS NOT NULL)
SELECT name FROM waited WHERE name IS NOT NULL AND NOT EXISTS (SELECT 1 FROM ledger_held h WHERE h.resource = name)`, func(r row) error {
		free = append(free, r.text(0))
		return nil
	})
	if err == nil {
		err = wake(t, free, s.wakes, func(string) {})
	}
	s.sweeps.Took(t.now, time.Since(start))
	return err
}

// wake makes the first of those claimable again, of each kind, who wait for these resources.
func wake(in session, resources []string, most int, woken func(kind string)) error {
	type wait struct{ resource, kind string }
	var waits []wait
	err := in.query(`SELECT j.value, k.kind FROM json_each(?1) j CROSS JOIN ledger_kinds k
 WHERE k.gated = 1 AND k.paused = 0 AND EXISTS (SELECT 1 FROM ledger_backlog b WHERE b.blocked_on = j.value AND b.kind = k.kind)`, func(r row) error {
		waits = append(waits, wait{r.text(0), r.text(1)})
		return nil
	}, array(resources))
	for _, w := range waits {
		if err != nil {
			return err
		}
		woken(w.kind)
		_, err = in.exec(`UPDATE ledger_backlog SET blocked_on = NULL WHERE item_id IN (
 SELECT item_id FROM ledger_backlog WHERE blocked_on = ?1 AND kind = ?2 ORDER BY priority, due_at, item_id LIMIT ?3)`, w.resource, w.kind, most)
	}
	return err
}

// Wake implements ledger.Tx.
func (x *tx) Wake(resources []string, woken func(kind string)) error {
	if err := wake(x.session, resources, x.s.wakes, woken); err != nil {
		return err
	}
	return x.session.query(`SELECT kind FROM ledger_reserver WHERE item_id > 0`, func(r row) error {
		woken(r.text(0))
		return nil
	})
}

// markGated notes of kinds that they have items that need resources.
func (x *tx) markGated(items []ledger.Record) error {
	marked := map[string]bool{}
	for i := range items {
		if k := items[i].Kind; len(items[i].Resources) > 0 && !marked[k] {
			marked[k] = true
			if _, err := x.session.exec(`UPDATE ledger_kinds SET gated = 1 WHERE kind = ?1 AND gated = 0`, k); err != nil {
				return err
			}
		}
	}
	return nil
}

// heldBy are the resources that items hold, sorted.
func heldBy(s session, ids []int64) (map[int64][]string, error) {
	held := map[int64][]string{}
	err := s.query(
		`SELECT item_id, resource FROM ledger_held WHERE item_id IN (SELECT value FROM json_each(?1)) ORDER BY resource`, func(r row) error {
			held[r.int(0)] = append(held[r.int(0)], r.text(1))
			return nil
		}, array(ids))
	return held, err
}

// Holds implements ledger.Store.
func (s *Store) Holds(ctx context.Context, resources []string) (out []scheduler.Hold, err error) {
	err = s.read(ctx, true, func(r session) error {
		taken := map[string]bool{}
		err := r.query(
			`SELECT h.resource, h.item_id, b.locked_by, h.since FROM ledger_held h JOIN ledger_backlog b ON b.item_id = h.item_id
 WHERE h.resource IN (SELECT value FROM json_each(?1))`, func(r row) error {
				out = append(out, scheduler.Hold{Resource: r.text(0), ItemID: r.int(1), Agent: r.text(2), Since: r.time(3)})
				taken[r.text(0)] = true
				return nil
			}, array(resources))
		if err != nil {
			return err
		}
		return r.query(selectReserver, func(r row) error {
			reserver := scheduler.Reserver{Until: r.time(11)}
			if r[0] == nil {
				return nil
			}
			c := scanGated(r)
			if reserver.Item = &c; !reserver.InForce(s.clock()) {
				return nil
			}
			for _, name := range c.Resources {
				if slices.Contains(resources, name) && !taken[name] {
					out = append(out, scheduler.Hold{Resource: name, ItemID: c.ID, Since: c.PassedAt})
				}
			}
			return nil
		})
	})
	slices.SortFunc(out, func(a, b scheduler.Hold) int { return cmp.Compare(a.Resource, b.Resource) })
	return out, err
}
