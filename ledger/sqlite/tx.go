package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// Update implements ledger.Store.
func (s *Store) Update(ctx context.Context, conn ledger.Conn, fn func(ledger.Tx) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return errClosed
	}
	if conn != nil {
		return s.inside(ctx, conn, func(x *tx) error { return fn(x) })
	}
	if err := s.outside(ctx); err != nil {
		return err
	}
	x := &tx{s: s, turn: s.w.turn(ctx, false)}
	finished := false
	defer func() {
		if !finished {
			x.turn.end(errAbandoned)
		}
	}()
	err := fn(x)
	finished = true
	return explain(s.file.name, x.turn.end(err))
}

// tx is a ledger.Tx, in a turn of the writer or in a transaction of the caller's. It waits for
// the turn only when it needs it: one that finds nothing expired has none.
type tx struct {
	s       *Store
	turn    *turn   // nil in the caller's transaction
	session session // nil until the turn has come
	now     time.Time
	holders map[int64]bool // items that were loaded leased, with resources
}

var _ ledger.Tx = (*tx)(nil)

// begin makes sure that the write lock is held.
func (x *tx) begin() error {
	if x.session != nil {
		return nil
	}
	if err := x.turn.take(); err != nil {
		return err
	}
	x.session, x.now = x.turn, x.turn.now
	return nil
}

// Now implements ledger.Tx. When the turn does not come the transaction fails, whatever the
// time.
func (x *tx) Now() time.Time {
	if x.begin() != nil {
		return x.s.clock()
	}
	return x.now
}

// Load implements ledger.Tx.
func (x *tx) Load(ids []int64) ([]ledger.Record, error) {
	if err := x.begin(); err != nil {
		return nil, err
	}
	recs, err := load(x.session, ids)
	if err != nil {
		return nil, err
	}
	policies := map[string]ledger.Kind{}
	for i := range recs {
		k := recs[i].Kind
		if _, known := policies[k]; !known {
			if policies[k], err = kind(x.session, k); err != nil {
				return nil, err
			}
		}
		recs[i].Policy = policies[k]
		if w := recs[i].Work; w != nil && w.Gated && w.State == ledger.StateLeased {
			if x.holders == nil {
				x.holders = map[int64]bool{}
			}
			x.holders[recs[i].ID] = true
		}
	}
	return recs, nil
}

var selectIdentities = newBulk("SELECT i.id FROM (", 3, ") v CROSS JOIN ledger_items i ON i.kind = v.column1 AND i.scope = v.column2 AND i.key = v.column3")

// LoadKeys implements ledger.Tx.
func (x *tx) LoadKeys(keys []ledger.Identity) ([]ledger.Record, error) {
	if err := x.begin(); err != nil {
		return nil, err
	}
	ids := make([]int64, 0, len(keys))
	err := selectIdentities.query(x.session, len(keys), func(list []any, i int) []any {
		return append(list, keys[i].Kind, keys[i].Scope, keys[i].Key)
	}, func(r row) error {
		ids = append(ids, r.int(0))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return x.Load(ids)
}

// LoadExpired implements ledger.Tx. It finds nothing for a while after this process had to
// wait for the write lock so long that the holders of leases may have been kept from renewing.
func (x *tx) LoadExpired(limit int) ([]ledger.Record, error) {
	if x.turn != nil && x.s.w.merciful() {
		return nil, nil
	}
	if x.session == nil {
		some := false
		err := x.s.look(x.turn.ctx, false, func(r session) (err error) {
			some, err = exists(r, `SELECT 1 FROM ledger_backlog WHERE state = 2 AND expires_at <= ?1`, x.s.clock())
			return err
		})
		if err != nil || !some {
			return nil, err
		}
	}
	if err := x.begin(); err != nil {
		return nil, err
	}
	return x.leased(`expires_at <= ?1`, limit, x.now)
}

// LoadLeased implements ledger.Tx.
func (x *tx) LoadLeased(agent string, limit int) ([]ledger.Record, error) {
	if err := x.begin(); err != nil {
		return nil, err
	}
	return x.leased(`leased_at <= ?1 AND locked_by = ?3`, limit, x.now, agent)
}

// leased loads up to limit records that are leased, the one whose lease ends first first. In the condition
// ?1 is the time, and what is given besides begins with ?3.
func (x *tx) leased(condition string, limit int, args ...any) ([]ledger.Record, error) {
	var ids []int64
	err := x.session.query(`SELECT item_id FROM ledger_backlog WHERE state = 2 AND `+condition+` ORDER BY expires_at, item_id LIMIT ?2`, func(r row) error {
		ids = append(ids, r.int(0))
		return nil
	}, slices.Insert(args, 1, any(limit))...)
	if err != nil {
		return nil, err
	}
	recs, err := x.Load(ids)
	slices.SortStableFunc(recs, func(a, b ledger.Record) int { return a.Work.ExpiresAt.Compare(b.Work.ExpiresAt) })
	return recs, err
}

// errEnough ends a query before its last row.
var errEnough = errors.New("enough")

// exists says whether a query has a row.
func exists(s session, query string, args ...any) (bool, error) {
	some := false
	err := s.query(`SELECT EXISTS(`+query+`)`, func(r row) error {
		some = r.bool(0)
		return nil
	}, args...)
	return some, err
}

// Attempts implements ledger.Tx.
func (x *tx) Attempts(id int64) ([]ledger.Attempt, error) {
	if err := x.begin(); err != nil {
		return nil, err
	}
	return attempts(x.session, []int64{id})
}

var insertKinds = newBulk(`INSERT INTO ledger_kinds (kind)`, 1, ` ON CONFLICT (kind) DO NOTHING`)

// EnsureKinds implements ledger.Tx.
func (x *tx) EnsureKinds(names []string) error {
	if err := x.begin(); err != nil {
		return err
	}
	return insertKinds.exec(x.session, len(names), func(list []any, i int) []any { return append(list, names[i]) })
}

// Kind implements ledger.Tx.
func (x *tx) Kind(name string) (ledger.Kind, bool, error) {
	if err := x.begin(); err != nil {
		return ledger.Kind{}, false, err
	}
	r, err := x.session.exec(`INSERT INTO ledger_kinds (kind) VALUES (?1) ON CONFLICT (kind) DO NOTHING`, name)
	if err != nil {
		return ledger.Kind{}, false, err
	}
	k, err := kind(x.session, name)
	return k, r.changes == 0, err
}

// PutKind implements ledger.Tx.
func (x *tx) PutKind(k ledger.Kind) error {
	if err := x.begin(); err != nil {
		return err
	}
	input, err := json.Marshal(k.Input)
	if err != nil {
		return err
	}
	limits, err := jsonLimits(k.Limits)
	if err != nil {
		return err
	}
	defaults, err := jsonDefaults(k.Defaults)
	if err != nil {
		return err
	}
	have, err := kind(x.session, k.Name)
	if err != nil {
		return err
	}
	micro := func(d time.Duration) int64 { return d.Microseconds() }
	_, err = x.session.exec(`INSERT INTO ledger_kinds (`+kindColumns+`) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)
 ON CONFLICT (kind) DO UPDATE SET plugin = ?2, input = ?3, on_lost = ?4, max_failures = ?5, max_crashes = ?6, max_lost = ?7,
  backoff_base = ?8, backoff_cap = ?9, timeout = ?10, keep = ?11, paused = ?12, definition = ?13, limits = ?14, config = ?15, defaults = ?16,
  laned = max(laned, ?14 <> '')`,
		k.Name, k.Plugin, string(input), k.OnLost == ledger.OnLostDoubt, k.MaxFailures, k.MaxCrashes, k.MaxLost,
		micro(k.Backoff.Base), micro(k.Backoff.Cap), micro(k.Timeout), micro(k.Keep), k.Paused, k.Definition, limits, k.Config, defaults)
	if err != nil || k.Limits == have.Limits || !k.Limits.Any() {
		return err
	}
	return x.countLeased(k)
}

// Standing implements ledger.Tx.
func (x *tx) Standing(kind string) (ledger.Standing, error) {
	if err := x.begin(); err != nil {
		return ledger.Standing{}, err
	}
	return standing(x.session, kind, ledger.Shard{}, x.now)
}

// Agents implements ledger.Tx.
func (x *tx) Agents() ([]ledger.Agent, error) {
	if err := x.begin(); err != nil {
		return nil, err
	}
	return agents(x.session, living, x.now)
}

// Journal implements ledger.Tx.
func (x *tx) Journal(e ledger.JournalEntry) error {
	if err := x.begin(); err != nil {
		return err
	}
	_, err := x.session.exec(`INSERT INTO ledger_journal (at, actor, action, subject, detail, changed) VALUES (?1, ?2, ?3, ?4, ?5, ?6)`,
		x.now, e.Actor, e.Action, e.Subject, e.Detail, e.Changed)
	return err
}
