package memory

import (
	"context"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// claimReady leases up to limit items of what is ready of the kind, which is not paused.
func (s *Store) claimReady(g ledger.Grant, limit int, now time.Time) (out []ledger.Record) {
	holders := s.holders()
	claimable := func(r *row) bool {
		return r.Work != nil && r.Work.State == ledger.StateReady && r.Kind == g.Kind && g.Shard.Covers(r.Slot)
	}
	var ready []scheduler.Candidate
	for _, r := range s.rows {
		if claimable(r) {
			ready = append(ready, r.candidate(holders))
		}
	}
	slices.SortFunc(ready, scheduler.Compare)
	p := scheduler.Claim{Kind: g.Kind, Shard: g.Shard, Limit: limit}.Pick(now, ready, s.reservation(holders))
	for _, id := range p.Granted {
		out = append(out, s.grant(id, g, now))
	}
	slices.SortFunc(out, compareRecords) // the reserver was looked at first
	for _, park := range p.Parked {
		s.lease(s.rows[park.ItemID], func(w *ledger.Work) { w.PassedAt = park.Since })
	}
	if p.Reserver != nil {
		s.reserver = *p.Reserver
	}
	if !p.Appoint.IsZero() {
		var first *row
		for _, r := range s.sorted() {
			if claimable(r) && len(r.Resources) > 1 && !r.Work.PassedAt.IsZero() &&
				(first == nil || r.Work.PassedAt.Before(first.Work.PassedAt)) {
				first = r
			}
		}
		if first != nil {
			s.reserver = scheduler.Reserver{ItemID: first.ID, Kind: first.Kind, Until: p.Appoint}
		}
	}
	return out
}

// holders are the leased items by the resources that they hold.
func (s *Store) holders() map[string]*row {
	holders := map[string]*row{}
	for _, r := range s.rows {
		for _, name := range r.held {
			holders[name] = r
		}
	}
	return holders
}

func (r *row) candidate(holders map[string]*row) scheduler.Candidate {
	c := scheduler.Candidate{ID: r.ID, Priority: r.Work.Priority, Due: r.Work.Due, Slot: r.Slot, Alone: r.Work.Alone,
		Resources: r.Resources, PassedAt: r.Work.PassedAt}
	for _, name := range r.Resources {
		if holders[name] != nil {
			c.Taken = append(c.Taken, name)
		}
	}
	return c
}

// reservation is the reserver with its item, if that can be one.
func (s *Store) reservation(holders map[string]*row) scheduler.Reserver {
	reserver := s.reserver
	if r := s.rows[reserver.ItemID]; r != nil && r.Work != nil && r.Work.State == ledger.StateReady &&
		len(r.Resources) > 1 && !s.kinds[r.Kind].Paused {
		c := r.candidate(holders)
		reserver.Item = &c
	}
	return reserver
}

// Holds implements ledger.Store.
func (s *Store) Holds(_ context.Context, resources []string) (out []scheduler.Hold, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resources = slices.Clone(resources)
	slices.Sort(resources)
	holders := s.holders()
	r := s.reservation(holders)
	for _, name := range slices.Compact(resources) {
		if h := holders[name]; h != nil {
			out = append(out, scheduler.Hold{Resource: name, ItemID: h.ID, Agent: h.Work.Agent, Since: h.Work.LeasedAt})
		} else if r.InForce(s.now()) && slices.Contains(r.Item.Resources, name) {
			out = append(out, scheduler.Hold{Resource: name, ItemID: r.ItemID, Since: r.Item.PassedAt})
		}
	}
	return out, nil
}

// Wake implements ledger.Tx. Nothing is laid aside here.
func (t *tx) Wake(resources []string, woken func(kind string)) error {
	for _, r := range t.s.rows {
		if w := r.Work; w != nil && w.State == ledger.StateReady && slices.ContainsFunc(r.Resources, func(name string) bool {
			return slices.Contains(resources, name)
		}) {
			woken(r.Kind)
		}
	}
	return nil
}
