package scheduler

import "time"

// A claim of a kind with limits by shard key goes through the keys with ready items, in the order of bytes. The next
// claim begins after the last key for which items were granted, so the keys take turns. The store skips the keys that
// their rate holds back, since there may be thousands of them. Within a key, and for a kind without such limits, the
// order is that of all claims.

// maxLanes is the most keys that one transaction reads. The next transaction continues after them.
const maxLanes = 5000

// Cursor is the place among the shard keys where the next claim of a kind and shard begins.
type Cursor struct {
	key string // begin after this key
	// A claim that reads maxLanes keys and grants nothing sets these, so that the next claims read the other keys.
	vain    bool   // such a claim was the last one
	start   string // where the first such claim began
	wrapped bool   // the claims since then have passed the last key
}

// goOn returns the cursor after a claim that found nothing up to key. more reports whether there are keys that neither
// this claim nor the claims before it that found nothing have read.
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

// Lanes is the part of a store that a claim reads.
type Lanes interface {
	// Next returns the first lane after a key, in the order of bytes, that has ready items and is not to be skipped;
	// false if there is none. It also returns the lanes that it skipped.
	Next(after string, p Pass) (Lane, Passed, bool, error)
	// Ready returns the first n ready items of a lane, in the order of claims.
	Ready(key string, n int) ([]Candidate, error)
}

// Pass describes the lanes to skip: those whose Next is later than After and not later than Until.
type Pass struct {
	After, Until time.Time
	End          string // skip no lane after this key; "": no end
	Look         int    // the most lanes to read; the last one of them is not skipped
}

// Over reports whether to skip a lane, after those that were skipped already.
func (p Pass) Over(l Lane, skipped Passed) bool {
	return skipped.Lanes+1 < p.Look && l.Next.After(p.After) && !l.Next.After(p.Until) && (p.End == "" || l.Key <= p.End)
}

// Passed describes the skipped lanes.
type Passed struct {
	Lanes int
	Next  time.Time // the earliest Next of them
}

// And returns p with one more skipped lane.
func (p Passed) And(l Lane) Passed {
	if p.Lanes == 0 || l.Next.Before(p.Next) {
		p.Next = l.Next
	}
	p.Lanes++
	return p
}

// Walk grants as many items as the limits allow. For a kind with limits by shard key it begins at the cursor, and
// returns the cursor of the next claim.
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

// visit handles the only lane of a kind without limits by shard key.
func (a *Admission) visit(lanes Lanes) error {
	n := a.allowed(Lane{})
	ready, err := lanes.Ready("", max(n, 1))
	if err != nil {
		return err
	}
	if len(ready) == 0 { // no item is ready, so none is held back
		a.Full, a.Wait = false, 0
	}
	a.grant(Lane{}, ready[:min(n, len(ready))])
	return nil
}

// walk goes through the keys after at, and then through those up to at, until there is no room or maxLanes keys were
// read. part reports the latter. next is the last key of which items were granted; if part, the last one that was read.
// If there is no room from the start, walk only reads whether a key has ready items.
func (a *Admission) walk(at string, lanes Lanes) (next string, part bool, err error) {
	key, last, wrapped := at, at, at == ""
	pass := a.heldByRate()
	for seen := 0; !a.ended && (a.room > 0 || seen == 0); {
		if seen == maxLanes {
			return key, true, nil
		}
		if pass.Look = maxLanes - seen; a.room == 0 {
			pass.Look = 1
		}
		l, passed, found, err := lanes.Next(key, pass)
		if err != nil {
			return at, false, err
		}
		a.passed(passed)
		seen += passed.Lanes
		if wrapped && (!found || at != "" && l.Key > at) {
			break
		}
		if !found {
			wrapped, key, pass.End = true, "", at
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
