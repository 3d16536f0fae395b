// Package memory keeps a ledger in memory: for tests of programs that embed one, and as the
// specification that the other stores are compared with. It is naive on purpose: maps, one
// mutex, everything sorted when asked.
package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// Options of New; the zero value is ready to use.
type Options struct {
	Now func() time.Time // tests only: replaces the clock
}

// Store is a ledger.Store. It forgets everything when the program ends.
type Store struct {
	clock func() time.Time

	mu      sync.Mutex
	nextID  int64
	rows    map[int64]*row
	byKey   map[ledger.Identity]int64
	kinds   map[string]ledger.Kind
	agents  map[string]beat
	tallies map[minute]stats.Minute
	locks   map[string]ledger.Lock
	fence   int64 // of the newest lock
	floors  []int64
	env     string // the environment
	journal []ledger.JournalEntry

	early   map[string]leases         // by kind: the leases in force when its present limits were set
	rates   map[lane]time.Time        // Next of scheduler.Lane
	cursors map[part]scheduler.Cursor // where the next claim begins
}

// row is an item with all its attempts, oldest first. Rows are replaced, never changed, so
// that an undone transaction only has to put the old one back.
type row struct {
	ledger.Record
	attempts []ledger.Attempt
	checksum uint32
}

type beat struct {
	ledger.Agent
	expires time.Time
}

var _ ledger.Store = (*Store)(nil)

// New makes an empty store.
func New(o Options) *Store {
	s := &Store{clock: o.Now, rows: map[int64]*row{}, byKey: map[ledger.Identity]int64{},
		kinds: map[string]ledger.Kind{}, agents: map[string]beat{}, tallies: map[minute]stats.Minute{},
		locks: map[string]ledger.Lock{}, early: map[string]leases{}, rates: map[lane]time.Time{},
		cursors: map[part]scheduler.Cursor{}}
	if s.clock == nil {
		s.clock = time.Now
	}
	return s
}

func (s *Store) now() time.Time { return s.clock().UTC().Truncate(time.Microsecond) }

// Now implements ledger.Store.
func (s *Store) Now(context.Context) (time.Time, error) { return s.now(), nil }

// in reports whether there is a row with its item in this state of the backlog.
func (r *row) in(state ledger.State) bool { return r != nil && r.Work != nil && r.Work.State == state }

// record returns a copy of a row as a transaction or a reader sees it. The caller may keep it. Last comes without log
// and output; DonePeriod is computed here.
func (s *Store) record(r *row) ledger.Record {
	c := r.Record
	if c.Work != nil {
		w := *c.Work
		c.Work = &w
	}
	if n := len(r.attempts); n > 0 {
		last := r.attempts[n-1]
		last.Log, last.Output = "", nil
		c.Last = &last
	}
	epoch := c.Epoch
	if c.Work != nil {
		epoch = c.Work.Epoch
	}
	c.DonePeriod = time.Time{}
	for _, a := range r.attempts {
		if a.Outcome.Completed() && a.Epoch == epoch && a.Period.After(c.DonePeriod) {
			c.DonePeriod = a.Period
		}
	}
	return c
}

// sorted returns all rows in id order.
func (s *Store) sorted() []*row {
	all := slices.Collect(maps.Values(s.rows))
	slices.SortFunc(all, func(a, b *row) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// Claim implements ledger.Store.
func (s *Store) Claim(_ context.Context, g ledger.Grant) (ledger.Claimed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	var out []ledger.Record
	if g.Resume {
		for _, r := range s.sorted() {
			if len(out) < g.Limit && r.in(ledger.StateLeased) && r.Kind == g.Kind && r.Work.Agent == g.Agent && names(g, r) {
				out = append(out, s.editWork(r, func(w *ledger.Work) { w.ExpiresAt = now.Add(g.TTL) }))
			}
		}
	}
	k := s.kinds[g.Kind]
	switch {
	case k.Paused:
		return ledger.Claimed{Records: out, Limited: k.Limits.Any()}, nil
	case k.Limits.Any():
		return s.claimLimited(g, k, out, now)
	}
	return ledger.Claimed{Records: append(out, s.claimReady(g, g.Limit-len(out), now)...)}, nil
}

// names reports whether a claim may lease a row: it names this one, or none.
func names(g ledger.Grant, r *row) bool { return len(g.Items) == 0 || slices.Contains(g.Items, r.ID) }

// claimReady leases up to limit ready items of the kind. The kind is not paused and has no limits.
func (s *Store) claimReady(g ledger.Grant, limit int, now time.Time) (out []ledger.Record) {
	ready, _ := lanes{s, g}.Ready("", limit) // its error is always nil
	for _, c := range ready {
		if c.Alone && len(out) > 0 {
			break
		}
		if out = append(out, s.grant(c.ID, g, now)); c.Alone {
			break
		}
	}
	return out
}

func candidate(r *ledger.Record) scheduler.Candidate {
	return scheduler.Candidate{ID: r.ID, Priority: r.Work.Priority, Due: r.Work.Due, Alone: r.Work.Alone}
}

// CompleteAndClaim implements ledger.Store, not in one transaction: Claim has no error here.
func (s *Store) CompleteAndClaim(ctx context.Context, c []ledger.Completion, g ledger.Grant) (landed []int64,
	got ledger.Claimed, err error) {
	if landed, err = s.Complete(ctx, nil, c); err == nil {
		got, err = s.Claim(ctx, g)
	}
	return landed, got, err
}

// editWork replaces the row by one with the edited Work, and returns the new record.
func (s *Store) editWork(r *row, edit func(*ledger.Work)) ledger.Record {
	n, w := *r, *r.Work
	edit(&w)
	n.Work = &w
	s.rows[r.ID] = &n
	return s.record(&n)
}

// held returns the row of a lease that is in force, else nil.
func (s *Store) held(ref ledger.LeaseRef) *row {
	if r := s.rows[ref.ItemID]; r != nil && r.Work != nil && r.Work.LockID == ref.LockID && ref.LockID != uuid.Nil {
		return r
	}
	return nil
}

// Complete implements ledger.Store.
func (s *Store) Complete(ctx context.Context, conn ledger.Conn, c []ledger.Completion) ([]int64, error) {
	var landed []int64
	err := s.Update(ctx, conn, func(t ledger.Tx) error {
		landed = nil
		var changes []ledger.Change
		for _, e := range c {
			r := s.held(e.LeaseRef)
			// Only what Store.Complete takes: none that fails, is reopened or cancelled. The ledger passes no recurring one.
			if r == nil || r.Work.Reopen || r.Work.Cancel || !r.FailingSince.IsZero() ||
				slices.Contains(landed, e.ItemID) {
				continue
			}
			w := r.Work
			changes = append(changes, ledger.Change{ID: r.ID, Finish: true, Attempt: &ledger.Attempt{ItemID: r.ID,
				Attempt: w.Attempt, Kind: r.Kind, Agent: w.Agent, LockID: w.LockID.String(), Worker: e.Worker, Epoch: w.Epoch,
				DueAt: w.Due, LeasedAt: w.LeasedAt, StartedAt: w.StartedAt, Renewals: w.Renewals, Outcome: e.Outcome,
				Final: true, Code: e.Code, Error: e.Error, Log: e.Log, Output: e.Output}})
			landed = append(landed, r.ID)
		}
		return t.Apply(changes)
	})
	return landed, err
}

// Renew implements ledger.Store.
func (s *Store) Renew(_ context.Context, ttl time.Duration, leases []ledger.LeaseRef) ([]ledger.Renewal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []ledger.Renewal
	for _, ref := range leases {
		if r := s.held(ref); r != nil {
			n := s.editWork(r, func(w *ledger.Work) { w.ExpiresAt, w.Renewals = s.now().Add(ttl), w.Renewals+1 })
			out = append(out, ledger.Renewal{LeaseRef: ref, ExpiresAt: n.Work.ExpiresAt, Cancel: n.Work.Cancel})
		}
	}
	return out, nil
}

// Holders implements ledger.Store.
func (s *Store) Holders(_ context.Context, ids []int64) ([]ledger.Renewal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []ledger.Renewal
	for _, id := range ids {
		if r := s.rows[id]; r.in(ledger.StateLeased) {
			out = append(out, ledger.Renewal{LeaseRef: ledger.LeaseRef{ItemID: id, LockID: r.Work.LockID},
				ExpiresAt: r.Work.ExpiresAt, Cancel: r.Work.Cancel})
		}
	}
	return out, nil
}

// Leased implements ledger.Store.
func (s *Store) Leased(_ context.Context, ids []int64) ([]ledger.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []ledger.Record
	for _, id := range ids {
		if r := s.rows[id]; r.in(ledger.StateLeased) {
			w := r.Work
			out = append(out, ledger.Record{ID: id, Identity: r.Identity, Stored: ledger.Stored{Every: r.Every, Zone: r.Zone},
				Work: &ledger.Work{State: w.State, Epoch: w.Epoch, Attempt: w.Attempt, Agent: w.Agent, LockID: w.LockID,
					LeasedAt: w.LeasedAt, ExpiresAt: w.ExpiresAt, Alone: w.Alone, Due: w.Due}})
		}
	}
	return out, nil
}

// Start implements ledger.Store.
func (s *Store) Start(_ context.Context, ttl time.Duration, leases []ledger.LeaseRef) ([]int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []int64
	for _, ref := range leases {
		if r := s.held(ref); r != nil && !r.Work.Cancel {
			s.editWork(r, func(w *ledger.Work) { w.StartedAt, w.ExpiresAt = s.now(), s.now().Add(ttl) })
			out = append(out, ref.ItemID)
		}
	}
	return out, nil
}

// Promote implements ledger.Store.
func (s *Store) Promote(_ context.Context, limit int) (kinds []string, next time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	waiting := slices.DeleteFunc(s.sorted(), func(r *row) bool { return !r.in(ledger.StateWaiting) })
	slices.SortStableFunc(waiting, func(a, b *row) int { return a.Work.Due.Compare(b.Work.Due) })
	for _, r := range waiting {
		if r.Work.Due.After(now) || limit == 0 {
			next = r.Work.Due
			break
		}
		limit--
		s.editWork(r, func(w *ledger.Work) { w.State = ledger.StateReady })
		if !slices.Contains(kinds, r.Kind) {
			kinds = append(kinds, r.Kind)
		}
	}
	return kinds, next, nil
}

// Watch implements ledger.Store: there is no other process.
func (s *Store) Watch(ctx context.Context, _ func(string)) { <-ctx.Done() }

// Announce implements ledger.Store: there is no other process.
func (s *Store) Announce(...string) {}

// Close implements ledger.Store.
func (s *Store) Close() error { return nil }

// Update implements ledger.Store. A conn is one of Begin's.
func (s *Store) Update(_ context.Context, conn ledger.Conn, fn func(ledger.Tx) error) error {
	if conn != nil {
		c, ok := conn.(*Tx)
		if !ok || c.t == nil || c.t.s != s {
			return fmt.Errorf("memory: not an open transaction of this ledger: %w", ledger.ErrInvalid)
		}
		return fn(c.t)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.begin()
	if err := fn(t); err != nil {
		t.undo()
		return err
	}
	return nil
}
