package scheduler

import "time"

// A store lets one claim of a kind with limits run at a time. So between its look and its grants no place
// is taken and no rate is used.

// Lane is how the limits of a kind stand for one shard key, or in all.
type Lane struct {
	Key     string    // "": in all
	Running int       // leased; a store need not count beyond the limit
	Next    time.Time // of the rate; zero, or in the past: it has not been used lately
}

// Crowding is how the limits of a kind stand at a moment of the database's clock.
type Crowding struct {
	Now        time.Time
	Whole, Key Lane
}

// HeldBack describes what the limits of a kind kept from being claimed.
type HeldBack struct {
	// Wait is after how long a rate lets the next of what is ready be claimed, as far as the claim has
	// looked: at all of it, if it leased nothing; 0: none is held back by a rate.
	Wait time.Duration
	// Full means that something is ready for which as many run as may.
	Full bool
}

// Delay notes that a rate lets the next be claimed after d, if it holds one back.
func (h *HeldBack) Delay(d time.Duration) {
	if d > 0 && (h.Wait == 0 || d < h.Wait) {
		h.Wait = d
	}
}

// Admission is a claim of a kind with limits, under way. A store walks it over what is ready, leases
// what was granted and writes down Moved.
type Admission struct {
	Granted []int64
	Moved   []Lane // whose Next is another
	More    bool   // nothing was granted, and there are keys that no claim has looked at; see Cursor
	HeldBack

	now    time.Time
	limits Limits
	whole  Lane
	limit  int // of the claim
	room   int // left of limit, and of what the kind is allowed in all
	held   time.Duration
	full   bool // in all
	ended  bool // by an item that is to be claimed alone
}

// Admit begins a claim of up to limit items; whole is the lane of all of the kind.
func (l Limits) Admit(now time.Time, whole Lane, limit int) *Admission {
	a := &Admission{now: now, limits: l, whole: whole, limit: limit, room: limit}
	if n := l.MaxRunning; n > 0 {
		a.room = min(a.room, max(0, n-whole.Running))
		a.full = n <= whole.Running
	}
	if r := l.Rate; r.Count > 0 {
		a.whole = a.settle(r, whole)
		n, wait := r.Allows(now, a.whole.Next, l.Burst)
		a.room, a.held = min(a.room, n), wait
	}
	return a
}

// settle brings back a Next that is further ahead than the burst allows: the clock was set back, or it
// is of a slower rate or a greater burst. The next grant comes after an interval then, and not when the
// clock has caught up.
func (a *Admission) settle(r Rate, l Lane) Lane {
	n := max(a.limits.Burst, 1)
	if furthest := r.after(a.now, time.Time{}, n, n); l.Next.After(furthest) {
		l.Next = furthest
		a.Moved = append(a.Moved, l)
	}
	return l
}

// Room is how many more may be granted in all. A claim that has granted nothing though there is room
// has found nothing, or nothing for whose shard key there is room.
func (a *Admission) Room() int { return a.room }

// heldByRate is which lanes their rate holds back. Those further ahead are to be settled.
func (a *Admission) heldByRate() (p Pass) {
	if r, n := a.limits.RatePerShardKey, max(a.limits.Burst, 1); r.Count > 0 {
		p.After, p.Until = a.now.Add(time.Duration(n-1)*r.interval()), r.after(a.now, time.Time{}, n, n)
	}
	return p
}

// passed notes why lanes were passed over.
func (a *Admission) passed(p Passed) {
	if p.Lanes > 0 {
		_, wait := a.limits.RatePerShardKey.Allows(a.now, p.Next, a.limits.Burst)
		a.Delay(wait)
	}
}

// allowed describes how many more of a lane may be granted; if none, it notes why. How much of a lane runs
// does not matter if its rate holds it back.
func (a *Admission) allowed(l Lane) int {
	n, wait, full := a.room, a.held, a.full
	if most := a.limits.MaxRunningPerShardKey; most > 0 {
		n, full = min(n, max(0, most-l.Running)), full || most <= l.Running
	}
	if r := a.limits.RatePerShardKey; r.Count > 0 {
		l = a.settle(r, l)
		free, held := r.Allows(a.now, l.Next, a.limits.Burst)
		if n, wait = min(n, free), max(wait, held); held > 0 {
			full = a.full
		}
	}
	switch {
	case n > 0 || a.limit == 0:
	case full:
		a.Full = true
	default:
		a.Delay(wait)
	}
	return n
}

// grant grants candidates of a lane, in the order of claims, and describes how many.
func (a *Admission) grant(l Lane, ready []Candidate) (n int) {
	for _, c := range ready {
		if c.Alone && len(a.Granted) > 0 {
			a.ended = true
			break
		}
		a.Granted = append(a.Granted, c.ID)
		a.room--
		n++
		if a.ended = c.Alone; a.ended {
			break
		}
	}
	if r := a.limits.RatePerShardKey; r.Count > 0 && n > 0 {
		l.Next = r.after(a.now, l.Next, a.limits.Burst, n)
		a.Moved = append(a.Moved, l)
	}
	return n
}
