package web

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/ledgerd/ledgerd/plugins/internal/failure"
)

// A check is the work of one item. If it is likely to wait longer than Patience, it is snoozed until its turn is due in
// the host's pace. The pace may change, so no snooze is much longer than MaxSnooze: later turns are only closeTurns
// apart, so that checks keep their order.
const (
	Patience   = time.Second
	MaxSnooze  = time.Minute
	closeTurns = 10 * time.Millisecond
)

// maxRefusals is how often in a row a URL is put off after a refusal. After that it has failed: the pace is not the
// cause.
const maxRefusals = 3

// usualHold is how long a check may keep its place at a little known host.
const usualHold = 100 * time.Millisecond

// hosts limits the requests of this process to each host: at most limit checks at a time, and at least
// interval between two requests.
type hosts struct {
	limit    int
	interval time.Duration

	mu     sync.Mutex
	byName map[string]*host
	sweep  int // number of hosts at which idle ones are forgotten
}

// host is the state of a host, for as long as it is busy or its pace matters.
type host struct {
	places           *semaphore.Weighted
	running, waiting int
	next             time.Time     // no request starts earlier
	promised         time.Time     // the turn of the check that was snoozed last
	hold             time.Duration // how long a check keeps its place: moving average
	moved            time.Time     // when a place was last taken or given back
}

// Seat is a place at a host, held by one check.
type Seat struct {
	hosts *hosts
	host  *host
	name  string
	since time.Time // when the place was taken
}

// Busy means that a check has to come again after Wait.
type Busy struct {
	name    string
	Wait    time.Duration
	refusal *failure.Error // of the host; nil if it was not asked
}

func (b *Busy) Error() string {
	if b.refusal != nil {
		return fmt.Sprintf("%s wants to be asked again later (%s)", b.name, b.refusal)
	}
	return fmt.Sprintf("waits for its turn at %s", b.name)
}

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
		return &Seat{hosts: hs, host: h, name: name, since: now}, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, hs.snooze(h, name, now)
}

// Move is Enter for a check that may have a seat. It keeps a seat at this host, and leaves a seat at another host.
func (hs *hosts) Move(ctx context.Context, from *Seat, name string) (*Seat, error) {
	if from != nil && from.name == name {
		return from, nil
	}
	from.Leave()
	return hs.Enter(ctx, name)
}

// get finds the host or makes it. If there are many hosts, it forgets those that are idle and owe no turn.
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

// stalled is how long no check at h has begun or ended while all its places are taken. The stall tells nothing about
// the pace after it, so it puts off all checks that wait, and does not increase the time between them.
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

// snooze promises a turn after all turns that were promised before.
func (hs *hosts) snooze(h *host, name string, now time.Time) *Busy {
	from := later(now.Add(max(Patience, hs.stalled(h, now))), h.next)
	due := later(h.promised.Add(hs.pace(h)), from)
	if limit := from.Add(MaxSnooze); due.After(limit) {
		due = later(limit, h.promised.Add(min(hs.pace(h), closeTurns)))
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

// Turn waits until the next request to the host may start. The error is the cause with which ctx ended.
func (s *Seat) Turn(ctx context.Context) error {
	hs, h := s.hosts, s.host
	hs.mu.Lock()
	now := time.Now()
	start := later(now, h.next)
	h.next = start.Add(hs.interval)
	hs.mu.Unlock()
	select {
	case <-time.After(start.Sub(now)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Answered lets the host rest for Patience if the answer is a refusal (see [Refuses]). Then it is asked at full pace
// again. The rest is not longer, because a refusal of one URL tells little about the others.
func (s *Seat) Answered(res *http.Response) {
	if !Refuses(res) {
		return
	}
	s.hosts.mu.Lock()
	defer s.hosts.mu.Unlock()
	s.host.next = later(s.host.next, time.Now().Add(Patience))
}

// Later returns the error of a check whose host refused it with f: it comes again after f.After.
func (s *Seat) Later(f *failure.Error) *Busy {
	return &Busy{name: s.name, Wait: f.After, refusal: f}
}

// Leave gives the place back. On a nil Seat it does nothing.
func (s *Seat) Leave() {
	if s == nil {
		return
	}
	hs, h := s.hosts, s.host
	hs.mu.Lock()
	h.running--
	h.moved = time.Now()
	held := h.moved.Sub(s.since)
	// One check that hangs must not make a fast host look slow: all checks that wait would be put off. At a slow host
	// many checks are slow.
	h.hold += (min(held, usualHold+4*h.hold) - h.hold) / 4
	hs.mu.Unlock()
	h.places.Release(1)
}
