package sqlstore

import (
	"sync"
	"time"
)

// A process sweeps after SweepEvery, or after sweepShare times the duration of the last sweep if that is longer.
const (
	SweepEvery = time.Second
	sweepShare = 20
)

// Pace decides when a process has to sweep again.
type Pace struct {
	Every time.Duration // SweepEvery; 0, in tests, means always

	mu   sync.Mutex
	last time.Time // by the clock of its callers
	rest time.Duration
}

// Due reports whether it is time for a sweep.
func (p *Pace) Due(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Every == 0 || now.Before(p.last) || now.Sub(p.last) >= p.rest
}

// Took records when the sweep began and how long it took.
func (p *Pace) Took(now time.Time, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last, p.rest = now, max(p.Every, sweepShare*d)
}
