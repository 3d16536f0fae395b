package scheduler

import "time"

// An item that needs several resources could be passed over for ever, because they are hardly ever free at
// the same moment. So a ledger has one reserver at a time: of the items with several resources that were
// passed over, the one that was passed over first. No other item gets what it needs. All that is held at
// that moment is free after the longest lease, so the reserver waits no longer than that. Several such
// items take turns. An item with a single resource needs no reservation: no item behind it in the order
// can get the resource before it.

const (
	// reserveFor is how long a reservation stands. Claims that could take the item prolong it: an item of
	// a kind or shard that no agent works any more must not keep resources from others.
	reserveFor = time.Minute
	// yieldFor is how long a kind leaves the next reservation to others, after one of its own. So little
	// is kept free for items that would have got it soon anyway.
	yieldFor = time.Second
)

// Reserver is the item for which a ledger keeps resources free, as it was written down.
type Reserver struct {
	ItemID int64 // 0: there is none
	Kind   string
	Until  time.Time // without an item: how long Kind leaves the next reservation to others
	// Item is nil unless the item is ready, needs several resources, and its kind is not paused.
	Item *Candidate
}

// InForce reports whether the resources of r.Item are kept free for it.
func (r Reserver) InForce(now time.Time) bool {
	left := r.Until.Sub(now) // more than it was made for: the clock was set back
	return r.Item != nil && left > 0 && left <= reserveFor
}

// covers reports whether a claim may take the item of a reserver that is in force.
func (c Claim) covers(r Reserver) bool { return r.Kind == c.Kind && c.Shard.Covers(r.Item.Slot) }

// reserve is what a claim makes of the reservation: another one to be written down, or until when a
// reserver is to be appointed.
func (c Claim) reserve(now time.Time, r Reserver, granted bool) (next *Reserver, appoint time.Time) {
	inForce := r.InForce(now)
	mine := inForce && c.covers(r)
	yields := r.ItemID == 0 && r.Kind == c.Kind && now.Before(r.Until) && r.Until.Sub(now) <= yieldFor
	switch {
	case mine && granted:
		return &Reserver{Kind: c.Kind, Until: now.Add(yieldFor)}, time.Time{}
	case mine && r.Until.Sub(now) < reserveFor/2:
		return &Reserver{ItemID: r.ItemID, Kind: r.Kind, Until: now.Add(reserveFor)}, time.Time{}
	case !inForce && !yields:
		return nil, now.Add(reserveFor)
	}
	return nil, time.Time{}
}
