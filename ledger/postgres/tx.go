package postgres

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// tx is a ledger.Tx over a session.
type tx struct {
	session
	s   *Store
	now time.Time // zero until it was read
	err error     // of Now, which cannot return it

	trust bool // a transaction of ours, which may fail and be repeated

	loaded  map[int64]loaded
	ids     map[ledger.Identity]int64 // known ones that Insert has come across
	ready   marks                     // rows made ready
	waiting map[string]time.Time      // kind → earliest due time of rows made to wait
	reset   []string                  // kinds that are no longer paused
	locked  []string                  // names of locks that have a record, which is locked
	ends    []func(committed bool)

	freed []string // resources for which somebody may wait
	woken func(kind string)
}

// loaded is what Apply must know of a record.
type loaded struct {
	kind  string
	slot  int
	work  bool // it has a backlog row
	holds bool // resources, under a lease
}

func newTx(s *Store, session session) *tx {
	return &tx{session: session, s: s, loaded: map[int64]loaded{}, ids: map[ledger.Identity]int64{}, ready: marks{}, waiting: map[string]time.Time{}}
}

// end tells what concerns claims of this process.
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

// told is the error of a rule, or of the clock, which comes first: without the time nothing that
// the rule said holds.
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
	loadTemplate = `SELECT ` + recordColumns + `, ` + kindColumns + ` FROM ` + loadedTables + `
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

func identify(ss session, keys []ledger.Identity, ids map[ledger.Identity]int64) error {
	if len(keys) == 0 {
		return nil
	}
	kinds, scopes, names := columnsOf(keys)
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

func columnsOf(keys []ledger.Identity) (kinds, scopes, names []string) {
	kinds, scopes, names = make([]string, len(keys)), make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		kinds[i], scopes[i], names[i] = k.Kind, k.Scope, k.Key
	}
	return kinds, scopes, names
}

// records reads loaded records.
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
		t.loaded[r.ID] = loaded{r.Kind, r.Slot, r.Work != nil, r.Work != nil && r.Work.Gated && r.Work.State == ledger.StateLeased}
	}
	return out, err
}

// Attempts implements ledger.Tx.
func (t *tx) Attempts(id int64) ([]ledger.Attempt, error) { return attempts(t, id) }

// Standing implements ledger.Tx.
func (t *tx) Standing(kind string) (ledger.Standing, error) { return standing(t, kind, ledger.Shard{}) }

// Agents implements ledger.Tx.
func (t *tx) Agents() ([]ledger.Agent, error) { return agents(t, living) }

// EnsureKinds implements ledger.Tx.
func (t *tx) EnsureKinds(names []string) error {
	return t.later(`INSERT INTO {{S}}.ledger_kinds (kind) SELECT kind FROM unnest($1::text[]) u(kind) ON CONFLICT (kind) DO NOTHING`, []any{names}, nil)
}

// Kind implements ledger.Tx.
func (t *tx) Kind(name string) (ledger.Kind, bool, error) {
	known := true
	err := t.later(`INSERT INTO {{S}}.ledger_kinds (kind) VALUES ($1) ON CONFLICT (kind) DO NOTHING RETURNING kind`, []any{name},
		func(scanner) error { known = false; return nil })
	if err != nil {
		return ledger.Kind{}, false, err
	}
	var row wholeKindRow
	err = t.query(`SELECT `+wholeKindColumns+` FROM {{S}}.ledger_kinds k WHERE k.kind = $1 FOR UPDATE`, []any{name},
		func(scan scanner) error { return scan(row.dest()...) })
	if err != nil {
		return ledger.Kind{}, false, err
	}
	k, err := row.kind()
	return k, known, err
}

// PutKind implements ledger.Tx.
func (t *tx) PutKind(k ledger.Kind) error {
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
	if !k.Paused {
		t.reset = append(t.reset, k.Name)
	}
	onLost := int16(0)
	if k.OnLost == ledger.OnLostDoubt {
		onLost = 1
	}
	if k.Limits.Any() {
		if err := t.later("SELECT pg_advisory_xact_lock($1)", []any{t.s.limitLock(k.Name)}, nil); err != nil {
			return err
		}
		t.ends = append(t.ends, func(bool) { t.s.gates.learn(k.Name, false, true) })
	}
	changed := false
	err = t.query(`WITH old AS MATERIALIZED (SELECT limits FROM {{S}}.ledger_kinds WHERE kind = $1)
UPDATE {{S}}.ledger_kinds SET plugin = $2, input = $3, on_lost = $4, max_failures = $5, max_crashes = $6, max_lost = $7,
 backoff_base = $8, backoff_cap = $9, timeout = $10, keep = $11, paused = $12, definition = $13, limits = $14, laned = laned OR $14 <> '', config = $15, defaults = $16 WHERE kind = $1
 RETURNING limits <> (SELECT limits FROM old)`,
		[]any{k.Name, k.Plugin, string(input), onLost, k.MaxFailures, k.MaxCrashes, k.MaxLost,
			k.Backoff.Base.Microseconds(), k.Backoff.Cap.Microseconds(), k.Timeout.Microseconds(), k.Keep.Microseconds(), k.Paused, k.Definition, limits, k.Config, defaults},
		func(scan scanner) error { return scan(&changed) })
	if err != nil || !changed {
		return err
	}
	t.ends = append(t.ends, func(bool) { t.s.lanes.forget(k.Name) })
	if !k.Limits.Any() {
		return nil
	}
	return t.later(counting(k.Limits, true), []any{k.Name}, nil)
}

// Journal implements ledger.Tx.
func (t *tx) Journal(e ledger.JournalEntry) error {
	return t.later(`INSERT INTO {{S}}.ledger_journal (at, actor, action, subject, detail, changed) VALUES (coalesce($1::timestamptz, now()), $2, $3, $4, $5, $6)`,
		[]any{t.stamp(), e.Actor, e.Action, e.Subject, e.Detail, e.Changed}, nil)
}
