package scheduler

import (
	"fmt"
	"strings"
	"time"
)

// Limits are the limits of a kind, across all processes. A zero field is no limit.
//
// Items count while they are leased. So the ledger itself knows how many count, and every end of a lease makes room for
// another item.
type Limits struct {
	// MaxRunning is the most items of the kind that may be leased at a time, 0 … 100,000.
	MaxRunning int `json:"max_running,omitempty"`
	// MaxRunningPerShardKey is the same limit for each shard key.
	MaxRunningPerShardKey int `json:"max_running_per_shard_key,omitempty"`
	// Rate is how many items of the kind may be leased in a time.
	Rate Rate `json:"rate,omitzero"`
	// RatePerShardKey is the same limit for each shard key.
	RatePerShardKey Rate `json:"rate_per_shard_key,omitzero"`
	// Burst is how many items may be leased at once after a pause, with either rate, 0 … 100,000; 0 means 1.
	Burst int `json:"burst,omitempty"`
}

// Any reports whether any limit is set.
func (l Limits) Any() bool { return l.MaxRunning > 0 || l.Rate.Count > 0 || l.ByKey() }

// ByKey reports whether a limit for each shard key is set.
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

// Bounds of limits. The time that Burst grants take at a rate is at most maxBurstTime. So adding it to a time cannot
// overflow a clock in nanoseconds.
const (
	maxLimit     = 100_000
	maxRateCount = 1_000_000
	maxRatePer   = 366 * 24 * time.Hour
	minRatePer   = time.Millisecond
	maxBurstTime = 10 * maxRatePer
)

// Check calls fail for each field that is out of bounds, with the reason in the form of fmt.Sprintf.
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
			fail("burst", "%d at a rate of %s, must be at most the items of ten years", l.Burst, v.String())
		}
	}
	if l.Burst > 0 && l.Rate.Count == 0 && l.RatePerShardKey.Count == 0 {
		fail("burst", "%d, needs rate or rate_per_shard_key", l.Burst)
	}
}
