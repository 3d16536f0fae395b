package scheduler

import (
	"fmt"
	"strings"
	"time"
)

// Limits of a kind, across all processes. A zero field is no limit.
//
// An item runs while it is leased. So the ledger knows what counts, and the end of a lease, in whatever
// way, frees a place.
type Limits struct {
	// MaxRunning is how many of its items are leased at a time, 0 … 100,000.
	MaxRunning int `json:"max_running,omitempty"`
	// MaxRunningPerShardKey is the same for each shard key.
	MaxRunningPerShardKey int `json:"max_running_per_shard_key,omitempty"`
	// Rate is how many items are leased in a time.
	Rate Rate `json:"rate,omitzero"`
	// RatePerShardKey is the same for each shard key.
	RatePerShardKey Rate `json:"rate_per_shard_key,omitzero"`
	// Burst is how many may be leased at once after a pause, for both rates, 0 … 100,000; 0 means 1.
	Burst int `json:"burst,omitempty"`
}

// Any reports whether there is a limit.
func (l Limits) Any() bool { return l.MaxRunning > 0 || l.Rate.Count > 0 || l.ByKey() }

// ByKey reports whether there is a limit for each shard key.
func (l Limits) ByKey() bool { return l.MaxRunningPerShardKey > 0 || l.RatePerShardKey.Count > 0 }

type namedNumber struct {
	name  string
	value int
}

func (l Limits) numbers() []namedNumber {
	return []namedNumber{{"max_running", l.MaxRunning}, {"max_running_per_shard_key", l.MaxRunningPerShardKey},
		{"burst", l.Burst}}
}

type namedRate struct {
	name  string
	value Rate
}

func (l Limits) rates() []namedRate {
	return []namedRate{{"rate", l.Rate}, {"rate_per_shard_key", l.RatePerShardKey}}
}

// String lists the limits: "max_running 10, rate 5/s".
func (l Limits) String() string {
	var list []string
	for _, n := range l.numbers() {
		if n.value > 0 {
			list = append(list, fmt.Sprintf("%s %d", n.name, n.value))
		}
	}
	for _, r := range l.rates() {
		if r.value.Count > 0 {
			list = append(list, r.name+" "+r.value.String())
		}
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// Bounds of limits. With the longest of them Burst grants are maxBurstTime of a rate; a clock in nanoseconds can add
// that to a time.
const (
	maxLimit     = 100_000
	maxRateCount = 1_000_000
	maxRatePer   = 366 * 24 * time.Hour
	minRatePer   = time.Millisecond
	maxBurstTime = 10 * maxRatePer
)

// Check calls fail with each field that is out of bounds, and with the reason as fmt.Sprintf takes it.
func (l Limits) Check(fail func(field, format string, args ...any)) {
	for _, n := range l.numbers() {
		if n.value < 0 || n.value > maxLimit {
			fail(n.name, "%d, must be 0 … 100,000", n.value)
		}
	}
	for _, r := range l.rates() {
		switch v := r.value; {
		case v == Rate{}:
		case !v.inRange():
			fail(r.name, "%d in %s, must be 1 … 1,000,000 items in 1ms … 366d, in whole microseconds", v.Count,
				v.Per.String())
		case l.Burst > 1 && time.Duration(l.Burst) > maxBurstTime/v.interval():
			fail("burst", "%d at a rate of %s, must be at most what ten years bring", l.Burst, v.String())
		}
	}
	if l.Burst > 0 && l.Rate.Count == 0 && l.RatePerShardKey.Count == 0 {
		fail("burst", "%d, needs rate or rate_per_shard_key", l.Burst)
	}
}
