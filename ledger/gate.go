package ledger

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
)

// This file is the rule about resources: names that an item needs for itself while it is leased.
//
// A claim walks over what is ready in the order (priority, due, id). An item of which a resource is
// held is passed over; it gets all of its resources or none, so whoever holds some never waits, and
// there is no deadlock. Resources are free again when the lease ends, in whatever way.
//
// An item that needs several could be passed over for ever, because they are hardly ever free at the
// same moment. So there is one reserver in a ledger at a time: of the items with several resources
// that were passed over, the one for which that is the longest time ago. What it needs is given to
// nobody else. All that is held then is free after the longest lease, so it waits no longer than
// that; several such items take their turns. An item that needs a single resource needs no such
// thing: nobody behind it in the order can get the resource before it.

const (
	// reserveFor is how long a reservation stands. Claims that could take the item prolong it: one of
	// a kind or shard that nobody works any more must not keep resources from others.
	reserveFor = time.Minute
	// yieldFor is how long a kind leaves the next reservation to others, after one of its own. So not
	// much is kept free for items that would have got it soon anyway.
	yieldFor = time.Second
)

// Hold is a resource that is not free.
type Hold struct {
	Resource string
	ItemID   int64
	Agent    string // who has the item leased; "": nobody yet, the resource is reserved for the item
	Since    time.Time
}

// Candidate is a ready item as a claim comes upon it.
type Candidate struct {
	ID        int64
	Priority  int16
	Due       time.Time
	Slot      int
	Alone     bool
	Resources []string // as in Record
	Taken     []string // those of Resources that leased items hold
	PassedAt  time.Time
	BlockedOn string // the resource for want of which a store laid it aside
}

// CompareCandidates is the order of claims.
func CompareCandidates(a, b Candidate) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.Due.Compare(b.Due), cmp.Compare(a.ID, b.ID))
}

// Reserver is the item for which a ledger keeps resources free, as it was written down.
type Reserver struct {
	ItemID int64 // 0: nobody
	Kind   string
	Until  time.Time // without an item: how long Kind leaves the next reservation to others
	// Item is nil unless the item is ready, needs several resources, and its kind is not paused.
	Item *Candidate
}

// InForce says whether nobody else is given the resources of r.Item.
func (r Reserver) InForce(now time.Time) bool {
	left := r.Until.Sub(now) // more than it was made for: the clock was set back
	return r.Item != nil && left > 0 && left <= reserveFor
}

// Pick is what a claim does with the candidates that it came upon.
type Pick struct {
	Granted []int64
	Taken   []Take // sorted by resource
	Parked  []Park
	// Reserver is to be written down; nil leaves what is there.
	Reserver *Reserver
	// Appoint, unless it is zero, asks for another reserver: of what is still ready of the kind and
	// shard then, needs several resources and was passed over, the item for which that is the longest
	// time ago (then the lowest id). Its reservation stands until then.
	Appoint time.Time
}

// Take is a resource that a granted item takes.
type Take struct {
	Resource string
	ItemID   int64
}

// Park is an item that was passed over: for want of which resource, and since when.
type Park struct {
	ItemID   int64
	Resource string
	Since    time.Time
}

// Pick decides which candidates a claim leases, up to limit. They are in the order of claims; the
// reserver is looked at before them if the claim may take it.
func (g Grant) Pick(now time.Time, limit int, candidates []Candidate, r Reserver) Pick {
	p := picking{taken: map[string]bool{}, now: now}
	inForce := r.InForce(now)
	mine := inForce && r.Kind == g.Kind && g.Shard.Covers(r.Item.Slot)
	if mine && limit > 0 {
		p.look(*r.Item)
	}
	if inForce {
		for _, name := range r.Item.Resources {
			p.taken[name] = true
		}
	}
	for _, c := range candidates {
		if len(p.Granted) >= limit || p.ended {
			break
		}
		if !mine || c.ID != r.ItemID {
			p.look(c)
		}
	}
	yields := r.ItemID == 0 && r.Kind == g.Kind && now.Before(r.Until) && r.Until.Sub(now) <= yieldFor
	switch {
	case mine && slices.Contains(p.Granted, r.ItemID):
		p.Reserver = &Reserver{Kind: g.Kind, Until: now.Add(yieldFor)}
	case mine && r.Until.Sub(now) < reserveFor/2:
		p.Reserver = &Reserver{ItemID: r.ItemID, Kind: r.Kind, Until: now.Add(reserveFor)}
	case !inForce && !yields:
		p.Appoint = now.Add(reserveFor)
	}
	slices.SortFunc(p.Taken, func(a, b Take) int { return cmp.Compare(a.Resource, b.Resource) })
	return p.Pick
}

// picking is one walk over candidates.
type picking struct {
	Pick
	now   time.Time
	taken map[string]bool // by what was granted, and what is reserved
	ended bool
}

func (p *picking) look(c Candidate) {
	for _, name := range c.Resources {
		if p.taken[name] || slices.Contains(c.Taken, name) {
			if c.BlockedOn != name {
				since := c.PassedAt
				if since.IsZero() {
					since = p.now
				}
				p.Parked = append(p.Parked, Park{c.ID, name, since})
			}
			return
		}
	}
	if c.Alone && len(p.Granted) > 0 {
		p.ended = true
		return
	}
	p.ended = c.Alone
	p.Granted = append(p.Granted, c.ID)
	for _, name := range c.Resources {
		p.taken[name] = true
		p.Taken = append(p.Taken, Take{name, c.ID})
	}
}

// freed are the resources that others may have after these changes of records: of leases that end,
// and of what is not ready any more, for it may have been the reserver.
func freed(recs []Record, changes []Change) (resources []string) {
	became := make(map[int64]State, len(changes))
	for i := range changes {
		if c := &changes[i]; c.Finish {
			became[c.ID] = StateDone
		} else if c.Work != nil {
			became[c.ID] = c.Work.State
		}
	}
	for i := range recs {
		w := recs[i].Work
		if to, changed := became[recs[i].ID]; changed && w != nil && w.Gated && (w.State == StateLeased || !w.PassedAt.IsZero()) && to != w.State {
			resources = append(resources, recs[i].Resources...)
		}
	}
	slices.Sort(resources)
	return slices.Compact(resources)
}

// applyFreeing applies changes of records, and lets those who wait for what they free know: it adds
// their kinds to kinds, at the latest when the transaction has committed.
func applyFreeing(tx Tx, recs []Record, changes []Change, kinds *[]string) error {
	if err := tx.Apply(changes); err != nil {
		return err
	}
	for i := range recs {
		if w := recs[i].Work; w != nil && w.State == StateLeased && recs[i].Policy.Limits.Any() && !slices.Contains(*kinds, recs[i].Kind) {
			*kinds = append(*kinds, recs[i].Kind)
		}
	}
	if names := freed(recs, changes); len(names) > 0 {
		return tx.Wake(names, func(kind string) { *kinds = append(*kinds, kind) })
	}
	return nil
}

// sortedResources is the form in which resources are kept.
func sortedResources(names []string) []string {
	if len(names) == 0 {
		return nil
	}
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}

// Holds says which of these resources are not free, and who has them, by resource.
func (l *Ledger) Holds(ctx context.Context, resources ...string) ([]Hold, error) {
	return l.store.Holds(ctx, resources)
}

// checkHeld is what Verify says of the resources of one item.
func (r *Audited) checkHeld(report func(rule, format string, args ...any)) {
	w := r.Work
	leased := w != nil && w.State == StateLeased
	switch {
	case !leased && len(r.Held) > 0:
		report("resources", "%d resources are held though nobody has it leased", len(r.Held))
	case leased && w.Gated == (len(r.Held) == 0):
		report("resources", "it is leased with %d resources held", len(r.Held))
	case leased && w.LockID != uuid.Nil && !w.Reopen && !slices.Equal(r.Held, r.Resources): // while it runs a newer version may bring others
		report("resources", "it holds %q and needs %q", r.Held, r.Resources)
	}
	if w != nil && !leased && w.Gated != (len(r.Resources) > 0) {
		report("resources", "it needs %d resources, but would be claimed as if gated is %v", len(r.Resources), w.Gated)
	}
	if w != nil && !w.PassedAt.IsZero() && (w.State != StateReady || !w.Gated) {
		report("resources", "it is %s and has been passed over since %s", w.State, w.PassedAt)
	}
}
