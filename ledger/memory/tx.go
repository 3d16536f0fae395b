package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// tx is a ledger.Tx under the store's mutex. It remembers what it replaced.
type tx struct {
	s       *Store
	now     time.Time
	rows    map[int64]*row // before this transaction; nil: there was none
	kinds   map[string]ledger.Kind
	locks   map[string]ledger.Lock
	agents  map[string]beat
	early   map[string]leases
	journal int
	floors  []int64
	env     string
}

func (s *Store) begin() *tx {
	return &tx{s: s, now: s.now(), kinds: maps.Clone(s.kinds), locks: maps.Clone(s.locks), agents: maps.Clone(s.agents),
		early: maps.Clone(s.early), journal: len(s.journal), floors: s.floors, env: s.env,
		rows: map[int64]*row{}}
}

// Tx is a transaction of the caller, for AddTx and FinishTx. It has no rows besides those of the ledger.
type Tx struct{ t *tx }

var _ ledger.Conn = (*Tx)(nil)

// Begin begins a transaction. Until it ends every other call of the store waits, reading ones too.
func (s *Store) Begin() *Tx {
	s.mu.Lock()
	return &Tx{s.begin()}
}

// End commits the transaction, or undoes it. A second call does nothing.
func (c *Tx) End(commit bool) {
	t := c.t
	if t == nil {
		return
	}
	c.t = nil
	if !commit {
		t.undo()
	}
	t.s.mu.Unlock()
}

// Dialect implements ledger.Conn.
func (*Tx) Dialect() string { return "memory" }

var errNoSQL = fmt.Errorf("memory: there is no SQL here: %w", ledger.ErrInvalid)

// Exec implements ledger.Conn. It always fails.
func (*Tx) Exec(context.Context, string, ...any) (int64, error) { return 0, errNoSQL }

// Query implements ledger.Conn. It always fails.
func (*Tx) Query(context.Context, string, ...any) (ledger.Rows, error) { return nil, errNoSQL }

func (t *tx) undo() {
	s := t.s
	for id, old := range t.rows {
		if now := s.rows[id]; now != nil {
			delete(s.byKey, now.Identity)
		}
		delete(s.rows, id)
		if old != nil {
			s.rows[id] = old
			s.byKey[old.Identity] = id
		}
	}
	s.kinds, s.locks, s.agents, s.early, s.journal, s.floors, s.env = t.kinds, t.locks, t.agents, t.early,
		s.journal[:t.journal], t.floors, t.env
}

// put replaces a row.
func (t *tx) put(id int64, r *row) {
	if _, seen := t.rows[id]; !seen {
		t.rows[id] = t.s.rows[id]
	}
	if r == nil {
		delete(t.s.byKey, t.s.rows[id].Identity)
		delete(t.s.rows, id)
		return
	}
	t.s.rows[id] = r
	t.s.byKey[r.Identity] = id
}

func (t *tx) Now() time.Time { return t.now }

func (t *tx) Insert(items []ledger.Record) ([]int64, error) {
	ids := make([]int64, len(items))
	for i, n := range items {
		if _, known := t.s.byKey[n.Identity]; known {
			continue
		}
		t.s.nextID++
		w := *n.Work
		if w.Due.IsZero() {
			w.Due = t.now
		}
		n.ID, n.Work, n.CreatedAt = t.s.nextID, &w, t.now
		n.Payload = bytes.Clone(n.Payload)
		t.put(n.ID, &row{Record: n, checksum: n.Identity.Checksum(n.Payload)})
		ids[i] = n.ID
	}
	return ids, nil
}

// loaded returns the record of a row with the policy of its kind.
func (t *tx) loaded(r *row) ledger.Record {
	rec := t.s.record(r)
	policy := t.s.kinds[r.Kind]
	rec.Policy = &policy
	return rec
}

func (t *tx) Load(ids []int64) ([]ledger.Record, error) {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	var out []ledger.Record
	for _, id := range slices.Compact(ids) {
		if r := t.s.rows[id]; r != nil {
			out = append(out, t.loaded(r))
		}
	}
	return out, nil
}

func (t *tx) LoadKeys(keys []ledger.Identity) ([]ledger.Record, error) {
	var ids []int64
	for _, k := range keys {
		if id := t.s.byKey[k]; id != 0 {
			ids = append(ids, id)
		}
	}
	return t.Load(ids)
}

func (t *tx) LoadExpired(limit int) ([]ledger.Record, error) {
	return t.leased(limit, func(w *ledger.Work) bool { return !w.ExpiresAt.After(t.now) }), nil
}

func (t *tx) LoadLeased(agent string, limit int) ([]ledger.Record, error) {
	return t.leased(limit, func(w *ledger.Work) bool {
		return agent == "" || w.Agent == agent && !w.LeasedAt.After(t.now)
	}), nil
}

// leased returns records of leases for which match returns true, in the order in which the leases expire.
func (t *tx) leased(limit int, match func(*ledger.Work) bool) []ledger.Record {
	var out []ledger.Record
	for _, r := range t.s.sorted() {
		if r.in(ledger.StateLeased) && match(r.Work) {
			out = append(out, t.loaded(r))
		}
	}
	slices.SortStableFunc(out, func(a, b ledger.Record) int { return a.Work.ExpiresAt.Compare(b.Work.ExpiresAt) })
	return out[:min(limit, len(out))]
}

func (t *tx) EndBeat(agent, process string) (bool, error) {
	b, there := t.s.agents[agent]
	if !there || b.Process != process {
		return false, nil
	}
	if b.expires.After(t.now) {
		b.expires = t.now
		t.s.agents[agent] = b
	}
	return true, nil
}

func (t *tx) Outputs(ids []int64) (map[int64][]byte, error) {
	outputs := map[int64][]byte{}
	for _, id := range ids {
		if r := t.s.rows[id]; r != nil {
			outputs[id] = r.output()
		}
	}
	return outputs, nil
}

func (t *tx) Attempts(id, from int64) (list []ledger.Attempt, err error) {
	if r := t.s.rows[id]; r != nil {
		for _, a := range r.attempts {
			if a.Attempt >= from {
				list = append(list, a)
			}
		}
	}
	return list, nil
}

func (t *tx) Apply(changes []ledger.Change) error {
	for _, c := range changes {
		old := t.s.rows[c.ID]
		if old == nil {
			return fmt.Errorf("memory: change of item %d, which there is not", c.ID)
		}
		if c.Forget {
			t.put(c.ID, nil)
			continue
		}
		n := *old
		if c.Finish {
			n.Work = nil
		}
		if c.Work != nil {
			w := *c.Work
			if err := check(&w); err != nil {
				return fmt.Errorf("memory: item %d: %w", c.ID, err)
			}
			n.Work = &w
		}
		if a := c.Attempt; a != nil {
			done := *a
			done.FinishedAt = t.now
			if len(done.Output) == 0 {
				done.Output = nil
			}
			if i, dup := slices.BinarySearchFunc(n.attempts, done.Attempt, func(a ledger.Attempt, v int64) int {
				return cmp.Compare(a.Attempt, v)
			}); dup || i < len(n.attempts) {
				return fmt.Errorf("memory: item %d has an attempt %d already", c.ID, done.Attempt)
			}
			n.attempts = append(slices.Clone(n.attempts), done)
		}
		if i := c.Item; i != nil {
			n.Fingerprint, n.Payload, n.Every, n.Zone = i.Fingerprint, bytes.Clone(i.Payload), i.Every, i.Zone
			n.Epoch, n.Trace, n.checksum = i.Epoch, i.Trace, cmp.Or(i.Checksum, n.checksum)
		}
		if c.Outage != nil {
			n.Outage = *c.Outage
		}
		t.put(c.ID, &n)
	}
	return nil
}

// check checks a row of the backlog as the CHECKs of the schemas do.
func check(w *ledger.Work) error {
	leased := w.State == ledger.StateLeased
	if leased != (w.Agent != "" && w.LockID != uuid.Nil && !w.LeasedAt.IsZero() && !w.ExpiresAt.IsZero()) ||
		!leased && (w.Agent != "" || w.LockID != uuid.Nil || !w.LeasedAt.IsZero() || !w.StartedAt.IsZero() ||
			!w.ExpiresAt.IsZero()) {
		return fmt.Errorf("a lease must be whole")
	}
	if (w.Cancel || w.Reopen) && !leased && w.State != ledger.StateDoubt {
		return fmt.Errorf("%s with cancel %v, reopen %v", w.State, w.Cancel, w.Reopen)
	}
	return nil
}

func (t *tx) EnsureKinds(names []string) error {
	for _, name := range names {
		if _, known := t.s.kinds[name]; !known {
			t.s.kinds[name] = ledger.Kind{Name: name}
		}
	}
	return nil
}

func (t *tx) Kind(name string) (ledger.Kind, bool, error) {
	k, known := t.s.kinds[name]
	if !known {
		k.Name = name
		t.s.kinds[name] = k
	}
	return k, known, nil
}

func (t *tx) PutKind(k ledger.Kind) error {
	if t.s.kinds[k.Name].Limits != k.Limits {
		early := leases{}
		for _, r := range t.s.rows {
			if r.Kind == k.Name && r.in(ledger.StateLeased) {
				early[ledger.LeaseRef{ItemID: r.ID, LockID: r.Work.LockID}] = true
			}
		}
		t.s.early[k.Name] = early
	}
	t.s.kinds[k.Name] = k
	return nil
}

func (t *tx) Standing(kind string) (stats.Standing, error) {
	return t.s.standing(kind, scheduler.Shard{}), nil
}

func (t *tx) Agents() ([]ledger.Agent, error) { return t.s.living(), nil }

func (t *tx) Journal(e ledger.JournalEntry) error {
	e.ID, e.At = int64(len(t.s.journal)+1), t.Now()
	t.s.journal = append(t.s.journal, e)
	return nil
}
