package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// Records implements ledger.Store.
func (s *Store) Records(_ context.Context, q ledger.RecordQuery) ([]ledger.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []ledger.Record
	rows := s.sorted()
	if q.Desc {
		slices.Reverse(rows)
	}
	for _, r := range rows {
		rec := s.record(r)
		if len(out) == q.Limit || !q.Filter.Match(&rec, s.now()) {
			continue
		}
		if q.Output {
			rec.Output = r.output()
		}
		out = append(out, rec)
	}
	return out, nil
}

// output returns the output of the newest attempt that has one.
func (r *row) output() []byte {
	for _, a := range slices.Backward(r.attempts) {
		if len(a.Output) > 0 {
			return slices.Clone(a.Output)
		}
	}
	return nil
}

// Count implements ledger.Store.
func (s *Store) Count(_ context.Context, f ledger.Filter) (n int64, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.rows {
		if rec := s.record(r); f.Match(&rec, s.now()) {
			n++
		}
	}
	return n, nil
}

// Attempts implements ledger.Store.
func (s *Store) Attempts(_ context.Context, id int64) ([]ledger.Attempt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.rows[id]; r != nil {
		return slices.Clone(r.attempts), nil
	}
	return nil, nil
}

// AttemptsBefore implements ledger.Store.
func (s *Store) AttemptsBefore(_ context.Context, id, before int64, limit int) (list []ledger.Attempt, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.rows[id]; r != nil {
		for _, a := range slices.Backward(r.attempts) {
			if (before == 0 || a.Attempt < before) && len(list) < limit {
				list = append(list, a)
			}
		}
	}
	return list, nil
}

// LastOutput implements ledger.Store.
func (s *Store) LastOutput(_ context.Context, id int64) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.rows[id]; r != nil {
		for _, a := range slices.Backward(r.attempts) {
			if a.Outcome.Completed() {
				return slices.Clone(a.Output), nil
			}
		}
	}
	return nil, nil
}

// Kinds implements ledger.Store.
func (s *Store) Kinds(_ context.Context, names ...string) ([]ledger.Kind, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.SortedFunc(maps.Values(s.kinds), func(a, b ledger.Kind) int { return cmp.Compare(a.Name, b.Name) })
	return slices.DeleteFunc(all, func(k ledger.Kind) bool {
		return len(names) > 0 && !slices.Contains(names, k.Name)
	}), nil
}

// Recurring implements ledger.Store.
func (s *Store) Recurring(context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kinds := map[string]bool{}
	for _, r := range s.rows {
		if r.Every != "" {
			kinds[r.Kind] = true
		}
	}
	return slices.Sorted(maps.Keys(kinds)), nil
}

// Standing implements ledger.Store.
func (s *Store) Standing(_ context.Context, kind string, part scheduler.Shard) (stats.Standing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.standing(kind, part), nil
}

func (s *Store) standing(kind string, part scheduler.Shard) stats.Standing {
	st := stats.Standing{Now: s.now()}
	for _, r := range s.rows {
		w := r.Work
		if w == nil || r.Kind != kind || !part.Covers(r.Slot) {
			continue
		}
		switch w.State {
		case ledger.StateReady:
			st.Ready++
		case ledger.StateWaiting:
			if !w.Due.After(st.Now) {
				st.Ready++
				continue
			}
			st.Waiting++
			if st.NextDue.IsZero() || w.Due.Before(st.NextDue) {
				st.NextDue = w.Due
			}
		case ledger.StateLeased:
			if _, program := s.agents[w.Agent]; program || !w.ExpiresAt.After(st.Now) {
				st.Held++
			} else {
				st.Persons++
			}
		case ledger.StateDead:
			st.Dead++
		case ledger.StateDoubt:
			st.Doubt++
		}
	}
	return st
}

// Known implements ledger.Store.
func (s *Store) Known(_ context.Context, keys []ledger.Identity) ([]bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := make([]bool, len(keys))
	for i, k := range keys {
		_, known[i] = s.byKey[k]
	}
	return known, nil
}

// Scopes implements ledger.Store.
func (s *Store) Scopes(_ context.Context, kind string, limit int) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	scopes := map[string]bool{}
	for _, r := range s.rows {
		if r.Kind == kind {
			scopes[r.Scope] = true
		}
	}
	sorted := slices.Sorted(maps.Keys(scopes))
	return sorted[:min(limit, len(sorted))], nil
}

// CountRounds implements ledger.Store.
func (s *Store) CountRounds(_ context.Context, f ledger.Filter, column string,
	each func(ledger.RoundCount) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for _, r := range s.sorted() {
		rec := s.record(r)
		if !f.Match(&rec, now) {
			continue
		}
		if err := each(rec.RoundCount(column, now)); err != nil {
			return err
		}
	}
	return nil
}

// Counts implements ledger.Store.
func (s *Store) Counts(_ context.Context, since time.Time) ([]stats.Counts, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	byKind := map[string]*stats.Counts{}
	for name := range s.kinds {
		byKind[name] = &stats.Counts{Kind: name}
	}
	now := s.now()
	for _, r := range s.rows {
		c := byKind[r.Kind]
		rec := s.record(r)
		switch it := rec.Item(now); it.State {
		case ledger.StateWaiting:
			c.Waiting++
			switch it.RoundState {
			case ledger.RoundDone:
				c.RoundsDone++
			case ledger.RoundFailed:
				c.RoundsFailed++
			case ledger.RoundPutOff:
				if c.RoundsPutOff++; it.Due.After(c.PutOffUntil) {
					c.PutOffUntil = it.Due
				}
			}
		case ledger.StateReady:
			c.Ready++
			if c.OldestReady.IsZero() || it.Due.Before(c.OldestReady) {
				c.OldestReady = it.Due
			}
		case ledger.StateLeased:
			c.Leased++
		case ledger.StateDead:
			c.Dead++
		case ledger.StateDoubt:
			c.Doubt++
		}
		for _, a := range r.attempts {
			if a.FinishedAt.Before(since) {
				continue
			}
			switch {
			case a.Outcome.Completed():
				c.Done++
			case a.Outcome.Failure():
				c.Failed++
			}
		}
	}
	out := make([]stats.Counts, 0, len(byKind))
	for _, c := range byKind {
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b stats.Counts) int { return cmp.Compare(a.Kind, b.Kind) })
	return out, nil
}

// Beat implements ledger.Store. It also forgets other programs some time after their heartbeat ran out, but not while
// they have leases: those would count as leases of persons.
func (s *Store) Beat(_ context.Context, a ledger.Agent, ttl time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if ttl == 0 {
		delete(s.agents, a.Name)
		return nil
	}
	a.StartedAt, a.SeenAt, a.Kinds, a.Configs = now, now, maps.Clone(a.Kinds), maps.Clone(a.Configs)
	a.Plugins = maps.Clone(a.Plugins)
	if old, there := s.agents[a.Name]; there && old.SameProcess(a) {
		a.StartedAt = old.StartedAt
	}
	s.agents[a.Name] = beat{a, now.Add(ttl)}
	holds, kept := s.leasing(), map[string]bool{}
	ranOut := slices.SortedFunc(maps.Values(s.agents), func(a, b beat) int {
		return cmp.Or(b.expires.Compare(a.expires), cmp.Compare(a.Name, b.Name))
	})
	for _, b := range ranOut {
		if !b.expires.After(now) && b.recent(now) && len(kept) < bounds.LapsedMost {
			kept[b.Name] = true
		}
	}
	maps.DeleteFunc(s.agents, func(name string, b beat) bool {
		return name != a.Name && holds[name] == 0 && !b.expires.After(now) && !kept[name]
	})
	return nil
}

// recent reports whether a heartbeat is still running, or ran out less than bounds.LapsedKept ago.
func (b beat) recent(now time.Time) bool { return b.expires.After(now.Add(-bounds.LapsedKept)) }

// Lapsed implements ledger.Store.
func (s *Store) Lapsed(context.Context) ([]ledger.Agent, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	return s.agentsIf(func(b beat) bool { return !b.expires.After(now) && b.recent(now) }), nil
}

// Agents implements ledger.Store.
func (s *Store) Agents(context.Context) ([]ledger.Agent, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.living(), nil
}

// Journal implements ledger.Store.
func (s *Store) Journal(_ context.Context, before int64, limit int) ([]ledger.JournalEntry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := []ledger.JournalEntry{}
	for _, e := range slices.Backward(s.journal) {
		if (before == 0 || e.ID < before) && len(found) < limit {
			found = append(found, e)
		}
	}
	return found, nil
}

// Heartbeats implements ledger.Store.
func (s *Store) Heartbeats(context.Context) ([]ledger.Agent, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	holds := s.leasing()
	return s.agentsIf(func(b beat) bool { return b.expires.After(s.now()) || holds[b.Name] > 0 }), nil
}

func (s *Store) living() []ledger.Agent {
	return s.agentsIf(func(b beat) bool { return b.expires.After(s.now()) })
}

// leasing counts the leased items of each agent.
func (s *Store) leasing() map[string]int64 {
	holds := map[string]int64{}
	for _, r := range s.rows {
		if r.in(ledger.StateLeased) {
			holds[r.Work.Agent]++
		}
	}
	return holds
}

// agentsIf returns the agents for whose heartbeats match returns true, by name.
func (s *Store) agentsIf(match func(beat) bool) []ledger.Agent {
	var out []ledger.Agent
	for _, b := range s.agents {
		if match(b) {
			out = append(out, b.Agent)
		}
	}
	slices.SortFunc(out, func(a, b ledger.Agent) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Prune implements ledger.Store.
func (s *Store) Prune(_ context.Context, kind string, before time.Time, limit int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pruned := 0
	for _, r := range s.sorted() {
		if pruned == limit {
			break
		}
		if r.Kind != kind || len(r.attempts) == 0 {
			continue
		}
		n := *r
		if r.Every != "" {
			if !pruneRecurring(&n, before) {
				continue
			}
		} else if !pruneFinished(&n, before) {
			continue
		}
		s.rows[r.ID] = &n
		pruned++
	}
	return pruned, nil
}

// pruneFinished prunes an item that is not recurring, and reports whether there was anything to prune.
func pruneFinished(r *row, before time.Time) bool {
	last := r.attempts[len(r.attempts)-1]
	if r.Work != nil || !last.Final || !last.FinishedAt.Before(before) ||
		len(r.Payload) == 0 && len(r.attempts) == 1 && last.Output == nil && last.Log == "" && last.Error == "" {
		return false
	}
	last.Output, last.Log, last.Error = nil, "", ""
	if r.Payload != nil {
		r.Payload = []byte{}
	}
	r.attempts, r.BaseAttempt = []ledger.Attempt{last}, last.Attempt-1
	return true
}

// pruneRecurring removes the attempts before the newest completion that ended before a time, or without one, before the
// newest final attempt that did. It reports whether there was any.
func pruneRecurring(r *row, before time.Time) bool {
	keep, completed := 0, false
	for i, a := range r.attempts {
		if a.FinishedAt.Before(before) && (a.Outcome.Completed() || a.Final && !completed) {
			keep, completed = i, completed || a.Outcome.Completed()
		}
	}
	if keep == 0 {
		return false
	}
	r.BaseAttempt = r.attempts[keep].Attempt - 1
	r.attempts = slices.Clone(r.attempts[keep:])
	return true
}

// Audit implements ledger.Store.
func (s *Store) Audit(_ context.Context, after int64, limit int) ([]ledger.Audited, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []ledger.Audited
	for _, r := range s.sorted() {
		if r.ID > after && len(out) < limit {
			out = append(out, ledger.Audited{Record: s.record(r), Attempts: slices.Clone(r.attempts), Checksum: r.checksum})
		}
	}
	return out, nil
}
