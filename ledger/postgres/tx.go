package postgres

import (
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/sqlstore"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// tx is a ledger.Tx over a session.
type tx struct {
	session
	sharedTx
	s   *Store
	now time.Time // zero until it was read
	err error     // of Now; Now cannot return it

	trust bool // items may be inserted as new ones without a look: a conflict fails the transaction, and it is repeated

	loaded  map[int64]loaded
	ids     map[ledger.Identity]int64 // of known items, as far as they were looked up
	ready   marks                     // rows made ready
	waiting map[string]time.Time      // kind → earliest due time of rows made to wait
	reset   []string                  // kinds that are no longer paused
	locked  []string                  // names of locks that have a record; the record is locked
	ends    []func(committed bool)    // called at the end of the transaction
}

// loaded is what Apply must know of a record.
type loaded struct {
	kind string
	slot int
	work bool // it has a backlog row
}

func newTx(s *Store, session session) *tx {
	t := &tx{session: session, s: s, loaded: map[int64]loaded{}, ids: map[ledger.Identity]int64{}, ready: marks{},
		waiting: map[string]time.Time{}}
	t.sharedTx = sqlstore.NewTx(sharedSession{session}, t.Now)
	return t
}

// end runs t.ends. After a commit it takes positions back to the rows that became ready.
func (t *tx) end(committed bool) {
	for _, fn := range t.ends {
		fn(committed)
	}
	if committed {
		t.s.positions.lower(t.ready, t.waiting, t.reset)
	}
}

// Now implements ledger.Tx. In a transaction of ours it is the transaction's start, a moment
// ago; a caller's may have begun long before.
func (t *tx) Now() time.Time {
	if t.now.IsZero() && t.err == nil {
		t.err = t.query("SELECT "+t.clock(), nil, func(scan scanner) error { return scan(&t.now) })
		t.now = t.now.UTC()
	}
	return t.now
}

// told returns the error of Now if there is one, else the error of a rule: without the time, no answer of a rule holds.
func (t *tx) told(err error) error {
	if t.err != nil {
		return t.err
	}
	return err
}

// clock is the time of this transaction as an expression.
func (t *tx) clock() string {
	if _, ours := t.session.(*own); ours && t.s.clock == nil {
		return "now()"
	}
	return "{{NOW}}"
}

// stamp is the time of this transaction as a parameter; NULL means now().
func (t *tx) stamp() *time.Time {
	if t.clock() == "now()" {
		return nil
	}
	now := t.Now()
	return &now
}

// withNow makes the next query read the clock on its way.
func (t *tx) withNow() error {
	if !t.now.IsZero() {
		return nil
	}
	return t.later("SELECT "+t.clock(), nil, func(scan scanner) error {
		err := scan(&t.now)
		t.now = t.now.UTC()
		return err
	})
}

// Load implements ledger.Tx. Items are locked before their backlog rows, both in id order; what
// is read afterwards is what stands until the end of the transaction.
func (t *tx) Load(ids []int64) ([]ledger.Record, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	ids = slices.Clone(ids)
	slices.Sort(ids)
	args := []any{slices.Compact(ids)}
	for _, lock := range []string{lockItems, lockBacklog} {
		if err := t.later(lock, args, nil); err != nil {
			return nil, err
		}
	}
	return t.records(loadTemplate, args)
}

const (
	lockItems    = `SELECT FROM {{S}}.ledger_items WHERE id` + listed + ` ORDER BY id FOR NO KEY UPDATE`
	lockBacklog  = `SELECT FROM {{S}}.ledger_backlog WHERE item_id` + listed + ` ORDER BY item_id FOR UPDATE`
	loadTemplate = `SELECT ` + recordColumns + `, ` + sqlstore.PolicyColumns + ` FROM ` + loadedTables + `
 JOIN {{S}}.ledger_kinds k ON k.kind = i.kind WHERE i.id` + listed + ` ORDER BY i.id`
)

// LoadKeys implements ledger.Tx.
func (t *tx) LoadKeys(keys []ledger.Identity) ([]ledger.Record, error) {
	var ids []int64
	var unknown []ledger.Identity
	for _, k := range keys {
		if id, ok := t.ids[k]; ok {
			ids = append(ids, id)
		} else {
			unknown = append(unknown, k)
		}
	}
	if err := t.identify(unknown); err != nil {
		return nil, err
	}
	for _, k := range unknown {
		if id, ok := t.ids[k]; ok {
			ids = append(ids, id)
		}
	}
	return t.Load(ids)
}

// identify finds the ids of the keys that are known, into t.ids.
func (t *tx) identify(keys []ledger.Identity) error { return identify(t, keys, t.ids) }

// identify finds the ids of the keys that are known, into ids.
func identify(ss session, keys []ledger.Identity, ids map[ledger.Identity]int64) error {
	if len(keys) == 0 {
		return nil
	}
	kinds, scopes, names := make([]string, len(keys)), make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		kinds[i], scopes[i], names[i] = k.Kind, k.Scope, k.Key
	}
	return ss.query(`SELECT i.id, i.kind, i.scope, i.key FROM `+unnest("text", "text", "text")+` u(kind, scope, key)
 JOIN {{S}}.ledger_items i ON i.kind = u.kind AND i.scope = u.scope AND i.key = u.key`, []any{kinds, scopes, names},
		func(scan scanner) error {
			var id int64
			var k ledger.Identity
			err := scan(&id, &k.Kind, &k.Scope, &k.Key)
			ids[k] = id
			return err
		})
}

// records reads records of a template, and remembers for Apply that they are loaded.
func (t *tx) records(template string, args []any) ([]ledger.Record, error) {
	if err := t.withNow(); err != nil {
		return nil, err
	}
	var out []ledger.Record
	read := loadedRecords()
	err := t.query(template, args, func(scan scanner) error {
		r, err := read(scan)
		out = append(out, r)
		return err
	})
	for i := range out {
		r := &out[i]
		t.loaded[r.ID] = loaded{r.Kind, r.Slot, r.Work != nil}
	}
	return out, err
}

// Standing implements ledger.Tx.
func (t *tx) Standing(kind string) (stats.Standing, error) {
	return standing(t, kind, scheduler.Shard{})
}

// EnsureKinds implements ledger.Tx.
func (t *tx) EnsureKinds(names []string) error {
	// An insert needs the right to insert even if it inserts nothing, and an adder has no such right.
	missing := 0
	err := t.query(`SELECT count(*) FROM unnest($1::text[]) u(kind) WHERE NOT EXISTS (SELECT FROM {{S}}.ledger_kinds k WHERE k.kind = u.kind)`,
		[]any{names}, func(scan scanner) error { return scan(&missing) })
	if err != nil || missing == 0 {
		return err
	}
	return t.later(
		`INSERT INTO {{S}}.ledger_kinds (kind) SELECT kind FROM unnest($1::text[]) u(kind) ON CONFLICT (kind) DO NOTHING`, []any{names}, nil)
}

// PutKind implements ledger.Tx.
func (t *tx) PutKind(k ledger.Kind) error {
	if !k.Paused {
		t.reset = append(t.reset, k.Name)
	}
	if k.Limits.Any() {
		if err := t.later("SELECT pg_advisory_xact_lock($1)", []any{t.s.limitLock(k.Name)}, nil); err != nil {
			return err
		}
		t.ends = append(t.ends, func(bool) { t.s.laned.learn(k.Name, true) })
	}
	changed, err := sqlstore.PutKind(sharedSession{t}, k)
	if err != nil || !changed {
		return err
	}
	t.ends = append(t.ends, func(bool) { t.s.lanes.forget(k.Name) })
	if !k.Limits.Any() {
		return nil
	}
	return t.later(counting(k.Limits, true), []any{k.Name}, nil)
}
