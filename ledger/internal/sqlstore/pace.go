package sqlstore

import (
	"sync"
	"time"
)

// A process sweeps for missed notifications after SweepEvery, or after sweepShare times what that took
// the last time if this is longer.
const (
	SweepEvery = time.Second
	sweepShare = 20
)

// Pace is when a process is to sweep again.
type Pace struct {
	Every time.Duration // SweepEvery; 0, in tests, is always

	mu   sync.Mutex
	last time.Time // by the clock of its callers
	rest time.Duration
}

// Due reports whether it is time.
func (p *Pace) Due(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Every == 0 || now.Before(p.last) || now.Sub(p.last) >= p.rest
}

// Took notes how long a look took.
func (p *Pace) Took(now time.Time, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last, p.rest = now, max(p.Every, sweepShare*d)
}
