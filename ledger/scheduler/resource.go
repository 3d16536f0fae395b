package scheduler

import (
	"cmp"
	"slices"
	"time"
)

// A claim goes over what is ready in the order of claims. An item gets all of its resources or none. It is
// passed over while another item holds one of them. So an item that holds resources never waits, and there
// is no deadlock. Resources are free again when the lease ends, in whatever way.

// Hold is a resource that is not free.
type Hold struct {
	Resource string
	ItemID   int64
	Agent    string // that has the item leased; "": the resource is reserved for the item
	Since    time.Time
}

// Pick is what a claim does with the candidates that it came upon.
type Pick struct {
	Granted []int64
	Taken   []Take // sorted by resource
	Parked  []Park
	// Reserver is to be written down; nil leaves what is there.
	Reserver *Reserver
	// Appoint, unless it is zero, asks for another reserver, whose reservation stands until then. Its item
	// is ready, of the kind and shard of the claim, needs several resources and was passed over. Of several
	// such items it is the one that was passed over first, then the one with the lowest id.
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

// Pick decides which candidates a claim leases. They are in the order of claims. The claim looks at the
// reserver before them, if it may take it.
func (c Claim) Pick(now time.Time, candidates []Candidate, r Reserver) Pick {
	p := picking{taken: map[string]bool{}, now: now}
	inForce := r.InForce(now)
	mine := inForce && c.covers(r)
	if mine && c.Limit > 0 {
		p.look(*r.Item)
	}
	if inForce {
		for _, name := range r.Item.Resources {
			p.taken[name] = true
		}
	}
	for _, candidate := range candidates {
		if len(p.Granted) >= c.Limit || p.ended {
			break
		}
		if !mine || candidate.ID != r.ItemID {
			p.look(candidate)
		}
	}
	p.Reserver, p.Appoint = c.reserve(now, r, slices.Contains(p.Granted, r.ItemID))
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

// Resources is the form in which the resources of an item are kept: sorted and distinct.
func Resources(names []string) []string {
	if len(names) == 0 {
		return nil
	}
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}
