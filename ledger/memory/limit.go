package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/invariant"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// lane identifies a scheduler.Lane; the key "" is the whole kind.
type lane struct{ kind, key string }

// leases is a set of leases.
type leases map[ledger.LeaseRef]bool

// part is a kind and shard. All its claims share one cursor.
type part struct {
	kind  string
	shard scheduler.Shard
}

// claimLimited is Claim for a kind with limits; held are the leases that the agent has already.
func (s *Store) claimLimited(g ledger.Grant, k ledger.Kind, held []ledger.Record, now time.Time) (ledger.Claimed,
	error) {
	at := part{g.Kind, g.Shard}
	a := k.Limits.Admit(now, s.lane(g.Kind, ""), g.Limit-len(held))
	from := s.cursors[at]
	if len(g.Items) > 0 {
		from = scheduler.Cursor{} // the keys of other items keep their turn
	}
	next, err := a.Walk(from, lanes{s, g})
	if err != nil {
		return ledger.Claimed{}, err
	}
	if len(g.Items) == 0 {
		s.cursors[at] = next
	}
	for _, l := range a.Moved {
		s.rates[lane{g.Kind, l.Key}] = l.Next.UTC()
	}
	var out []ledger.Record
	for _, id := range a.Granted {
		out = append(out, s.grant(id, g, now))
	}
	slices.SortFunc(out, func(a, b ledger.Record) int { return scheduler.Compare(candidate(&a), candidate(&b)) })
	return ledger.Claimed{Records: append(held, out...), Limited: true, More: a.More && len(g.Items) == 0,
		HeldBack: a.HeldBack}, nil
}

// grant leases a ready item.
func (s *Store) grant(id int64, g ledger.Grant, now time.Time) ledger.Record {
	return s.editWork(s.rows[id], func(w *ledger.Work) {
		w.State, w.Attempt = ledger.StateLeased, g.Next(w.Attempt)
		w.Agent, w.LockID, w.LeasedAt, w.ExpiresAt = g.Agent, g.LockID, now, now.Add(g.TTL)
	})
}

// shardKey is the key by which limits count the item.
func (r *row) shardKey() string { return cmp.Or(r.ShardKey, r.Key) }

// lane returns how much of the limits of a kind is used, for a shard key or with "" in all.
func (s *Store) lane(kind, key string) scheduler.Lane {
	l := scheduler.Lane{Key: key, Next: s.rates[lane{kind, key}]}
	for _, r := range s.rows {
		if r.in(ledger.StateLeased) && r.Kind == kind && (key == "" || r.shardKey() == key) {
			l.Running++
		}
	}
	return l
}

// lanes are the scheduler.Lanes of a claim.
type lanes struct {
	s *Store
	g ledger.Grant
}

// ready returns the ready rows of a lane in the shard of the claim; for "" those of all lanes.
func (l lanes) ready(key string) (rows []*row) {
	for _, r := range l.s.rows {
		if r.in(ledger.StateReady) && r.Kind == l.g.Kind && (key == "" || r.shardKey() == key) && l.g.Shard.Covers(r.Slot) &&
			names(l.g, r) {
			rows = append(rows, r)
		}
	}
	return rows
}

// Next implements scheduler.Lanes.
func (l lanes) Next(after string, p scheduler.Pass) (lane scheduler.Lane, passed scheduler.Passed, some bool,
	err error) {
	keys := map[string]bool{}
	for _, r := range l.ready("") {
		keys[r.shardKey()] = true
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if key <= after {
			continue
		}
		if lane = l.s.lane(l.g.Kind, key); !p.Over(lane, passed) {
			return lane, passed, true, nil
		}
		passed = passed.And(lane)
	}
	return scheduler.Lane{}, passed, false, nil
}

// Ready implements scheduler.Lanes.
func (l lanes) Ready(key string, n int) (out []scheduler.Candidate, _ error) {
	for _, r := range l.ready(key) {
		out = append(out, candidate(&r.Record))
	}
	slices.SortFunc(out, scheduler.Compare)
	return out[:min(n, len(out))], nil
}

// LimitUsage implements ledger.Store.
func (s *Store) LimitUsage(_ context.Context, kind, key string) (scheduler.Usage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return scheduler.Usage{Now: s.now(), Whole: s.lane(kind, ""), Key: s.lane(kind, key)}, nil
}

// Orphans implements ledger.Store. It finds only leases beyond limits: a row holds its attempts and its work.
func (s *Store) Orphans(_ context.Context, limit int) (o invariant.Orphans, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var leased []*row
	for _, r := range s.sorted() {
		if r.in(ledger.StateLeased) && s.kinds[r.Kind].Limits.Any() &&
			!s.early[r.Kind][ledger.LeaseRef{ItemID: r.ID, LockID: r.Work.LockID}] {
			leased = append(leased, r)
		}
	}
	slices.SortStableFunc(leased, func(a, b *row) int { return a.Work.LeasedAt.Compare(b.Work.LeasedAt) })
	running := map[lane]int{}
	for _, r := range leased {
		whole, key, limits := lane{r.Kind, ""}, lane{r.Kind, r.shardKey()}, s.kinds[r.Kind].Limits
		running[whole]++
		running[key]++
		above := func(l lane, most int) bool { return most > 0 && running[l] > most }
		if (above(whole, limits.MaxRunning) || above(key, limits.MaxRunningPerShardKey)) && len(o.Beyond) < limit {
			o.Beyond = append(o.Beyond, r.ID)
		}
	}
	return o, nil
}
