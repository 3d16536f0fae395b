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

// Count adds one. A negative time counts as 0: clocks differ.
func (l *Latencies) Count(d time.Duration) {
	l[min(bits.Len64(uint64(max(0, d)/shortest)), len(l)-1)]++
}

// Add adds those of another one.
func (l *Latencies) Add(o Latencies) {
	for i, n := range o {
		l[i] += n
	}
}

// Total is how many there are.
func (l Latencies) Total() (n int64) {
	for _, c := range l {
		n += c
	}
	return n
}

// Bound is the end of a range; it is not in the range. The last one has none: 0.
func Bound(i int) time.Duration {
	if i == len(Latencies{})-1 {
		return 0
	}
	return shortest << i
}

// Within is the bound below which that percentile (1 … 100) of the durations lies, by nearest rank. It is at most twice
// as long as the percentile itself, or 4 ms. If that lies in the last range it is 0; so it is if there are none.
func (l Latencies) Within(percent int) time.Duration {
	rank := (int64(percent)*l.Total() + 99) / 100
	for i, n := range l {
		if rank -= n; n > 0 && rank <= 0 {
			return Bound(i)
		}
	}
	return 0
}
