package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// minute identifies a tally.
type minute struct {
	at          time.Time
	kind, agent string
}

// tally adds t to the tally of k.
func (s *Store) tally(k minute, t stats.Minute) {
	sum := s.tallies[k]
	sum.At, sum.Kind, sum.Agent = k.at, k.kind, k.agent
	sum.Add(t)
	s.tallies[k] = sum
}

// AddTallies implements ledger.Store.
func (s *Store) AddTallies(_ context.Context, tallies []stats.Minute) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range tallies {
		s.tally(minute{t.At, t.Kind, t.Agent}, t)
	}
	return nil
}

// Tallies implements ledger.Store.
func (s *Store) Tallies(_ context.Context, since time.Time) ([]stats.Minute, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sums := New(Options{})
	for k, t := range s.tallies {
		if !k.at.Before(since) {
			sums.tally(minute{k.at, k.kind, ""}, t)
		}
	}
	return slices.SortedFunc(maps.Values(sums.tallies), func(a, b stats.Minute) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Kind, b.Kind))
	}), nil
}

// ForgetTallies implements ledger.Store.
func (s *Store) ForgetTallies(_ context.Context, before time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.tallies, func(k minute, _ stats.Minute) bool { return k.at.Before(before) })
	return nil
}

// LeasedBy implements ledger.Store.
func (s *Store) LeasedBy(context.Context) (map[string]int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leasing(), nil
}

// Ended implements ledger.Store.
func (s *Store) Ended(_ context.Context, q ledger.EndedQuery) ([]ledger.Ended, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []ledger.Ended{}
	before := func(a, b ledger.Mark) int {
		if q.Desc {
			return b.Compare(a)
		}
		return a.Compare(b)
	}
	for _, r := range s.rows {
		rec := s.record(r)
		for _, a := range r.attempts {
			e := ledger.Ended{Attempt: a, Scope: r.Scope, Key: r.Key, Every: r.Every, Zone: r.Zone}
			if e.Log = ""; q.Body {
				e.Payload = r.Payload
			} else {
				e.Output = nil
			}
			rec.Last = &a // conditions on the newest attempt apply to each
			if (!q.Failed || a.Outcome.FailedOrUncertain()) && (q.After == ledger.Mark{} || before(e.Mark(), q.After) > 0) &&
				q.Filter.Match(&rec, s.now()) {
				out = append(out, e)
			}
		}
	}
	slices.SortFunc(out, func(a, b ledger.Ended) int { return before(a.Mark(), b.Mark()) })
	return out[:min(q.Limit, len(out))], nil
}

// Ahead implements ledger.Store.
func (s *Store) Ahead(_ context.Context, r *ledger.Record, limit int) (n int64, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := cmp.Or(r.ShardKey, r.Key)
	for _, o := range s.rows {
		if o.in(ledger.StateReady) && o.Kind == r.Kind && n < int64(limit) &&
			(!r.Policy.Limits.ByKey() || o.shardKey() == key) &&
			scheduler.Compare(candidate(&o.Record), candidate(r)) < 0 {
			n++
		}
	}
	return n, nil
}
