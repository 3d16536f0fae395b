package stats

import (
	"math/bits"
	"time"
)

// shortest is the bound of the first range of Latencies.
const shortest = 4 * time.Millisecond

// Latencies count durations by 24 ranges, each twice as long as the one before: below 4 ms, below 8 ms, and so on to
// below 2^22 × 4 ms (4 h 39 min 37.216 s). The last one has what took longer.
type Latencies [24]int64

// Count adds a duration. A negative one counts as 0: clocks differ.
func (l *Latencies) Count(d time.Duration) {
	l[min(bits.Len64(uint64(max(0, d)/shortest)), len(l)-1)]++
}

// Add adds the counts of o.
func (l *Latencies) Add(o Latencies) {
	for i, n := range o {
		l[i] += n
	}
}

// Total returns the number of counted durations.
func (l Latencies) Total() (n int64) {
	for _, c := range l {
		n += c
	}
	return n
}

// Bound returns the end of range i; it is not in the range. The last range has no end: 0.
func Bound(i int) time.Duration {
	if i == len(Latencies{})-1 {
		return 0
	}
	return shortest << i
}

// Within returns the end of the range in which a percentile (1 … 100) of the durations lies, by nearest rank. It is at
// most twice as long as the percentile itself, or 4 ms. It is 0 for the last range, and if there are no durations.
func (l Latencies) Within(percent int) time.Duration {
	rank := (int64(percent)*l.Total() + 99) / 100
	for i, n := range l {
		if rank -= n; n > 0 && rank <= 0 {
			return Bound(i)
		}
	}
	return 0
}
