package scheduler

import "time"

// Of a kind with limits by shard key a claim goes over the keys of which something is ready, in the order of
// bytes. The next claim begins behind the last key that got something, so the keys take turns. A store
// itself passes over the keys that their rate holds back, since there may be thousands. Within a key, and
// of a kind without such limits, the order is that of all claims.

// maxLanes bounds the keys that a transaction looks at. The next one goes on from there.
const maxLanes = 5000

// Cursor is where among the shard keys the next claim of a kind and shard begins.
type Cursor struct {
	key string // behind this one
	// Of claims that found nothing, one after another, and have not yet been once round.
	vain, wrapped bool
	start         string
}

// goOn is the cursor after a claim that found nothing as far as a key. It reports whether there are keys that
// neither this claim nor those in vain before it have looked at.
func (c Cursor) goOn(key string) (next Cursor, more bool) {
	next = Cursor{key: key, vain: true, wrapped: c.wrapped, start: c.start}
	if !c.vain {
		next.start = c.key
	}
	back := key <= c.key
	if back && c.wrapped || (back || c.wrapped) && key >= next.start {
		return Cursor{key: key}, false
	}
	next.wrapped = back || c.wrapped
	return next, true
}

// Lanes is what a claim asks a store for.
type Lanes interface {
	// Next is the first lane after a key, in the order of bytes, of which something is ready and that is
	// not to be passed over; false when there is none.
	Next(after string, p Pass) (Lane, Passed, bool, error)
	// Ready are the first n of what is ready of a lane, in the order of claims.
	Ready(key string, n int) ([]Candidate, error)
}

// Pass is which lanes to pass over: those whose Next is later than After and not later than Until.
type Pass struct {
	After, Until time.Time
	End          string // not those behind this key; "": there is no end
	Look         int    // at so many lanes; the last of them is not passed over
}

// Over reports whether to pass over a lane, after others.
func (p Pass) Over(l Lane, others Passed) bool {
	return others.Lanes+1 < p.Look && l.Next.After(p.After) && !l.Next.After(p.Until) && (p.End == "" || l.Key <= p.End)
}

// Passed is what was passed over.
type Passed struct {
	Lanes int
	Next  time.Time // the earliest of them
}

// And is p and a lane after it.
func (p Passed) And(l Lane) Passed {
	if p.Lanes == 0 || l.Next.Before(p.Next) {
		p.Next = l.Next
	}
	p.Lanes++
	return p
}

// Walk grants what may be granted. For a kind with limits by shard key it begins at the cursor, and returns
// that of the next claim.
func (a *Admission) Walk(at Cursor, lanes Lanes) (next Cursor, err error) {
	if !a.limits.ByKey() {
		err = a.visit(lanes)
	} else {
		var part bool
		next.key, part, err = a.walk(at.key, lanes)
		if part && len(a.Granted) == 0 {
			next, a.More = at.goOn(next.key)
		}
	}
	if n := len(a.Granted); n > 0 && a.limits.Rate.Count > 0 && err == nil {
		a.whole.Next = a.limits.Rate.after(a.now, a.whole.Next, a.limits.Burst, n)
		a.Moved = append(a.Moved, a.whole)
	}
	return next, err
}

// visit goes to the one lane of a kind without limits by shard key.
func (a *Admission) visit(lanes Lanes) error {
	n := a.allowed(Lane{})
	ready, err := lanes.Ready("", max(n, 1))
	if err != nil {
		return err
	}
	if len(ready) == 0 { // nothing is held back
		a.Full, a.Wait = false, 0
	}
	a.grant(Lane{}, ready[:min(n, len(ready))])
	return nil
}

// walk goes once round the keys, or a part of it, or as far as it takes. If nothing may be granted in
// all, it looks only whether there is anything.
func (a *Admission) walk(at string, lanes Lanes) (next string, part bool, err error) {
	key, last, round := at, at, at == ""
	pass := a.heldByRate()
	for seen := 0; !a.ended && (a.room > 0 || seen == 0); {
		if seen == maxLanes {
			return key, true, nil
		}
		if pass.Look = maxLanes - seen; a.room == 0 {
			pass.Look = 1
		}
		l, passed, some, err := lanes.Next(key, pass)
		if err != nil {
			return at, false, err
		}
		a.passed(passed)
		seen += passed.Lanes
		if !some || round && at != "" && l.Key > at {
			if round {
				break
			}
			round, key, pass.End = true, "", at
			continue
		}
		key = l.Key
		seen++
		n := a.allowed(l)
		if n == 0 {
			continue
		}
		ready, err := lanes.Ready(key, n)
		if err != nil {
			return at, false, err
		}
		if a.grant(l, ready) > 0 {
			last = key
		}
	}
	return last, false, nil
}
