package pluginhost

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Restarts after crashes.
const (
	restartBase  = 500 * time.Millisecond // the longest pause after the first crash; doubled after each further crash
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
	old := func(t time.Time) bool { return now.Sub(t) >= crashWindow }
	b.crashes = append(slices.DeleteFunc(b.crashes, old), now)
	n := len(b.crashes)
	if b.probing || n >= breakerAt {
		b.crashes, b.probing, b.next = nil, true, now.Add(breakerPause)
		return true
	}
	pause := restartBase << (n - 1)             // at most 4 s, because n < breakerAt
	b.next = now.Add(pause/2 + rand.N(pause/2)) // random: hosts that crashed together do not start together
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
