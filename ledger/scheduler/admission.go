package scheduler

import "time"

// A store runs one claim of a kind with limits at a time. So between reading a lane and granting its items, no other
// claim uses the same room.

// Lane is how much of the limits of a kind is used, for one shard key or in all.
type Lane struct {
	Key     string // "": the whole kind
	Running int    // leased items; a store need not count beyond the limit
	// Next is the time of the rate, see rate.go: items are allowed while it is at most Burst-1 intervals ahead of now. If
	// it is zero or past, a whole burst is allowed.
	Next time.Time
}

// Usage is how much of the limits of a kind is used, at a time of the database's clock.
type Usage struct {
	Now        time.Time
	Whole, Key Lane
}

// HeldBack describes which limits of a kind kept ready items from being claimed.
type HeldBack struct {
	// Wait is the time until a rate allows the next ready item, of those that the claim has read. A claim that leased
	// nothing has read all. 0 means that no rate holds an item back.
	Wait time.Duration
	// Full means that an item is ready, but as many items as may run are leased already.
	Full bool
}

// Delay notes that a rate allows an item after d; 0 means that the rate holds none back.
func (h *HeldBack) Delay(d time.Duration) {
	if d > 0 && (h.Wait == 0 || d < h.Wait) {
		h.Wait = d
	}
}

// Admission is a running claim of a kind with limits. A store calls Walk, leases the Granted items and writes the Moved
// lanes.
type Admission struct {
	Granted []int64
	Moved   []Lane // lanes with a new Next, each once: a lane that settle lowers is granted nothing
	More    bool   // nothing was granted, and there are keys that no claim has read; see Cursor
	HeldBack

	now    time.Time
	limits Limits
	whole  Lane
	limit  int           // of the claim; 0 if the leases that it resumes fill it
	room   int           // how many more items the claim and the limits of the whole kind allow
	held   time.Duration // until the rate of the whole kind allows an item
	full   bool          // as many items of the kind are leased as may be
	ended  bool          // an item that has to be claimed alone ended the claim
}

// Admit begins a claim of up to limit items; whole is the lane of the whole kind.
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

// settle lowers a Next that is further ahead than the burst allows, because the clock was set back, or Next is from a
// slower rate or a larger burst. Then the next grant comes after one interval, and not when the clock has reached Next.
func (a *Admission) settle(r Rate, l Lane) Lane {
	n := max(a.limits.Burst, 1)
	if furthest := r.after(a.now, time.Time{}, n, n); l.Next.After(furthest) {
		l.Next = furthest
		a.Moved = append(a.Moved, l)
	}
	return l
}

// Room returns how many more items the claim and the limits of the whole kind allow. If a claim has granted nothing
// though there is room, then no item is ready, or the limits of their shard keys hold all ready items back.
func (a *Admission) Room() int { return a.room }

// heldByRate returns which lanes the store need not read, as a range of Next: while Next is later than After, the rate
// allows none of a lane's items. A Next later than Until cannot be right: the clock was set back, or the rate has
// changed. Such a lane is read, so that settle lowers its Next.
func (a *Admission) heldByRate() (p Pass) {
	if r, n := a.limits.RatePerShardKey, max(a.limits.Burst, 1); r.Count > 0 {
		p.After, p.Until = a.now.Add(time.Duration(n-1)*r.interval()), r.after(a.now, time.Time{}, n, n)
	}
	return p
}

// passed records how long the rate holds skipped lanes back.
func (a *Admission) passed(p Passed) {
	if p.Lanes > 0 {
		_, wait := a.limits.RatePerShardKey.Allows(a.now, p.Next, a.limits.Burst)
		a.Delay(wait)
	}
}

// allowed returns how many more items of a lane may be granted; if none, it records the reason. A lane that its rate
// holds back is not Full, however many of its items run.
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
	case n > 0 || a.limit == 0: // nothing is held back
	case full:
		a.Full = true
	default:
		a.Delay(wait)
	}
	return n
}

// grant grants candidates of a lane, in the order of claims, and returns how many.
func (a *Admission) grant(l Lane, ready []Candidate) (n int) {
	for _, c := range ready {
		if c.Alone && len(a.Granted) > 0 {
			a.ended = true
			break
		}
		a.Granted = append(a.Granted, c.ID)
		a.room--
		n++
		if c.Alone {
			a.ended = true
			break
		}
	}
	if r := a.limits.RatePerShardKey; r.Count > 0 && n > 0 {
		l.Next = r.after(a.now, l.Next, a.limits.Burst, n)
		a.Moved = append(a.Moved, l)
	}
	return n
}
