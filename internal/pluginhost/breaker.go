package pluginhost

import (
	"math/rand/v2"
	"time"
)

// Restarts after crashes.
const (
	restartBase  = 500 * time.Millisecond // before the first restart; twice that after each further crash
	restartMost  = time.Minute
	crashWindow  = 10 * time.Minute
	breakerAt    = 5 // crashes in crashWindow
	breakerPause = 5 * time.Minute
)

// breaker is a circuit breaker: it decides when a crashed process is started again. After breakerAt crashes it opens:
// for breakerPause nothing is started, then one item at a time is tried until one has ended.
type breaker struct {
	crashes []time.Time // of the last crashWindow
	next    time.Time   // no start before it
	probing bool        // open, or trying one item at a time
}

// crashed records a crash and reports whether it opened the breaker.
func (b *breaker) crashed(now time.Time) (opened bool) {
	recent := b.crashes[:0]
	for _, t := range b.crashes {
		if now.Sub(t) < crashWindow {
			recent = append(recent, t)
		}
	}
	b.crashes = append(recent, now)
	n := len(b.crashes)
	if b.probing || n >= breakerAt {
		b.crashes, b.probing, b.next = nil, true, now.Add(breakerPause)
		return true
	}
	pause := min(restartBase<<(n-1), restartMost)
	b.next = now.Add(pause/2 + rand.N(pause/2)) // hosts that crashed together do not start together
	return false
}

// open is the time until which the open breaker starts nothing; zero if it is not open.
func (b *breaker) open(now time.Time) time.Time {
	if b.probing && now.Before(b.next) {
		return b.next
	}
	return time.Time{}
}

// worked closes the breaker: an item has ended in the process.
func (b *breaker) worked() { b.probing = false }
