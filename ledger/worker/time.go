package worker

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// signal sends on a channel with a buffer of one; a signal that was not received yet is enough.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// wait waits for a signal, until ctx ends or most has passed (0: no limit). It reports whether there was a signal.
func wait(ctx context.Context, c <-chan struct{}, most time.Duration) bool {
	var late <-chan time.Time
	if most > 0 {
		late = time.After(most)
	}
	select {
	case <-c:
		return true
	case <-late:
	case <-ctx.Done():
	}
	return false
}

// sleep waits for d, or until ctx ends. It reports whether ctx has not ended.
func sleep(ctx context.Context, d time.Duration) bool {
	wait(ctx, nil, max(d, 1)) // 0 would be no limit
	return ctx.Err() == nil
}

// jitter returns a duration of three to five quarters of d, so that workers do not act at the same time.
func jitter(d time.Duration) time.Duration {
	return time.Duration((0.75 + rand.Float64()/2) * float64(d))
}

// backoff is the pause before the next try of a call that failed.
type backoff time.Duration

const (
	firstBackoff = backoff(50 * time.Millisecond)
	lastBackoff  = backoff(5 * time.Second)
)

// next returns the pause before the next try. Each is twice as long as the one before.
func (b *backoff) next() time.Duration {
	*b = min(max(*b+*b, firstBackoff), lastBackoff)
	return jitter(time.Duration(*b))
}

// clock estimates the database's clock, to sleep until something is due there.
type clock struct{ offset atomic.Int64 }

func (c *clock) set(there, here time.Time) { c.offset.Store(int64(there.Sub(here))) }

func (c *clock) now() time.Time { return c.there(time.Now()) }

// there returns the time of the database's clock for a time of this machine.
func (c *clock) there(here time.Time) time.Time { return here.Add(time.Duration(c.offset.Load())) }

// skew returns how far the clock of this machine is ahead of the database's; 0 until it is known.
func (c *clock) skew() time.Duration {
	return time.Duration(-c.offset.Load()).Truncate(time.Microsecond)
}
