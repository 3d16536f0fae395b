package web

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// A check that is likely to wait for longer than Patience is snoozed, for MaxSnooze more than it must: a
// host's pace may change, so no promise reaches further.
const (
	Patience  = time.Second
	MaxSnooze = time.Minute
)

// usualHold is how long a check may keep its place at a host of which little is known.
const usualHold = 100 * time.Millisecond

// hosts keeps the process polite: at most limit checks at a time per host, and at least
// interval between two requests to it.
type hosts struct {
	limit    int
	interval time.Duration

	mu     sync.Mutex
	byName map[string]*host
	sweep  int // number of hosts at which idle ones are forgotten
}

type host struct {
	places           *semaphore.Weighted
	running, waiting int
	next             time.Time     // no request starts earlier
	promised         time.Time     // when the check that was snoozed last may come back
	hold             time.Duration // how long a check keeps its place: moving average
	moved            time.Time     // when a place was last taken or given back
}

// Seat is a place at a host, held by one check.
type Seat struct {
	of    *hosts
	host  *host
	name  string
	since time.Time
}

// Busy says that a check had better come again after Wait.
type Busy struct {
	name string
	Wait time.Duration
}

func (b *Busy) Error() string { return fmt.Sprintf("waits for its turn at %s", b.name) }

// newHosts lets limit checks at a time go to each host, with interval between two requests; limit is 1 or more.
func newHosts(limit int, interval time.Duration) *hosts {
	return &hosts{limit: limit, interval: interval, byName: map[string]*host{}, sweep: 1024}
}

// Enter takes a place at the host, waiting up to Patience for it. The error is *Busy, or the
// cause with which ctx ended.
func (hs *hosts) Enter(ctx context.Context, name string) (*Seat, error) {
	hs.mu.Lock()
	h, now := hs.get(name), time.Now()
	if hs.expected(h, now) > Patience {
		defer hs.mu.Unlock()
		return nil, hs.snooze(h, name, now)
	}
	h.waiting++
	hs.mu.Unlock()

	limited, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	err := h.places.Acquire(limited, 1)

	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.waiting--
	now = time.Now()
	switch {
	case err == nil:
		h.running++
		h.moved = now
		return &Seat{of: hs, host: h, name: name, since: now}, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, hs.snooze(h, name, now)
}

// Move is Enter for who may have a seat: one at that host is kept, another one left.
func (hs *hosts) Move(ctx context.Context, from *Seat, name string) (*Seat, error) {
	if from != nil && from.name == name {
		return from, nil
	}
	from.Leave()
	return hs.Enter(ctx, name)
}

// get finds the host or makes it, and now and then forgets those of which there is nothing
// to remember.
func (hs *hosts) get(name string) *host {
	if h := hs.byName[name]; h != nil {
		return h
	}
	if len(hs.byName) >= hs.sweep {
		now := time.Now()
		for n, h := range hs.byName {
			if h.running+h.waiting == 0 && h.next.Before(now) && h.promised.Before(now) {
				delete(hs.byName, n)
			}
		}
		hs.sweep = 2*len(hs.byName) + 1024
	}
	h := &host{places: semaphore.NewWeighted(int64(hs.limit)), moved: time.Now()}
	hs.byName[name] = h
	return h
}

// pace is the time from one check's start at h to the next one's while its places are taken.
func (hs *hosts) pace(h *host) time.Duration {
	return max(h.hold/time.Duration(hs.limit), hs.interval)
}

// stalled is how long no check at h has come to an end, while all its places are taken. That
// says nothing of the pace behind the stall, so it puts off, but does not spread, what waits.
func (hs *hosts) stalled(h *host, now time.Time) time.Duration {
	if h.running < hs.limit {
		return 0
	}
	return now.Sub(h.moved)
}

// expected is how long a check that comes now is likely to wait.
func (hs *hosts) expected(h *host, now time.Time) time.Duration {
	places := time.Duration(max(0, h.running+h.waiting+1-hs.limit)) * hs.pace(h)
	turns := h.next.Sub(now) + time.Duration(h.waiting)*hs.interval
	return max(places, turns)
}

// snooze promises a turn after everybody to whom one was promised before.
func (hs *hosts) snooze(h *host, name string, now time.Time) *Busy {
	from := later(now.Add(max(Patience, hs.stalled(h, now))), h.next)
	due := later(h.promised.Add(hs.pace(h)), from)
	if limit := from.Add(MaxSnooze); due.After(limit) {
		due = limit
	}
	h.promised = due
	return &Busy{name: name, Wait: due.Sub(now)}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Turn waits until the next request to the host may start. The error is *Busy if that is far
// off because the host was closed, or the cause with which ctx ended.
func (s *Seat) Turn(ctx context.Context) error {
	hs, h := s.of, s.host
	hs.mu.Lock()
	now := time.Now()
	start := later(now, h.next)
	if start.Sub(now) > Patience+time.Duration(hs.limit)*hs.interval { // more than the others here can cause
		defer hs.mu.Unlock()
		return hs.snooze(h, s.name, now)
	}
	h.next = start.Add(hs.interval)
	hs.mu.Unlock()
	timer := time.NewTimer(start.Sub(now))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// CloseFor keeps every check away from the host for d.
func (s *Seat) CloseFor(d time.Duration) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.host.next = later(s.host.next, time.Now().Add(d))
}

// Leave gives the place back. No seat is left easily.
func (s *Seat) Leave() {
	if s == nil {
		return
	}
	hs, h := s.of, s.host
	hs.mu.Lock()
	h.running--
	h.moved = time.Now()
	held := h.moved.Sub(s.since)
	// One link that hangs must not make a fast host look slow: the many behind it would all be
	// put off. A host that is slow shows it again and again.
	h.hold += (min(held, usualHold+4*h.hold) - h.hold) / 4
	hs.mu.Unlock()
	h.places.Release(1)
}
