package scheduler

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger/recurrence"
)

// A rate is kept by the generic cell rate algorithm: each lane has one time, Lane.Next, and each grant moves it ahead
// by Per/Count. Next may be ahead of the database's clock by at most the time of Burst grants. So in any time t, at
// most Burst + t·Count/Per items are granted.

// Rate is a number of items in a time; the zero value is no limit.
type Rate struct {
	Count int           `json:"count"` // 1 … 1,000,000
	Per   time.Duration `json:"per"`   // 1 ms … 366 days
}

// ParseRate parses "100/s", "30/m", "1000/h", "50/d", "5/10s", and "0" for no limit.
func ParseRate(text string) (Rate, error) {
	if text == "0" {
		return Rate{}, nil
	}
	count, per, _ := strings.Cut(text, "/")
	n, err := strconv.Atoi(strings.TrimSpace(count))
	if per = strings.TrimSpace(per); per != "" && per[0] > '9' {
		per = "1" + per
	}
	d, perErr := recurrence.ParseDuration(per)
	if r := (Rate{n, d}); err == nil && perErr == nil && r.inRange() {
		return r, nil
	}
	return Rate{}, fmt.Errorf("must be 1 to %d items in a time of 1ms to 366d, such as \"100/s\", \"30/m\" or \"5/10s\", not %q",
		maxRateCount, text)
}

func (r Rate) inRange() bool {
	return r.Count >= 1 && r.Count <= maxRateCount && r.Per >= minRatePer && r.Per <= maxRatePer &&
		r.Per%time.Microsecond == 0
}

// String returns the rate as people write it: "5/s", "30/10m".
func (r Rate) String() string {
	if r.Count == 0 {
		return "0"
	}
	per := r.Per.String()
	for _, zero := range []string{"0s", "0m"} { // 10m0s is 10m
		if short := strings.TrimSuffix(per, zero); short != per && short != "" && short[len(short)-1] > '9' {
			per = short
		}
	}
	const day = 24 * time.Hour
	if r.Per%day == 0 {
		per = fmt.Sprintf("%dd", r.Per/day)
	}
	if len(per) == 2 {
		per = strings.TrimPrefix(per, "1")
	}
	return fmt.Sprintf("%d/%s", r.Count, per)
}

// Allows returns how many items may be granted now, and if none, the time until the next one.
func (r Rate) Allows(now, next time.Time, burst int) (n int, wait time.Duration) {
	t := r.interval()
	room := time.Duration(max(burst, 1))*t - r.ahead(now, next, burst)
	if room < t {
		return 0, t - room
	}
	return int(room / t), 0
}

// interval returns the time between two grants. It is rounded up, so that the rate is never exceeded.
func (r Rate) interval() time.Duration {
	return (r.Per + time.Duration(r.Count) - 1) / time.Duration(r.Count)
}

// ahead returns how far next is ahead of now, at most the time of burst grants; see Admission.settle.
func (r Rate) ahead(now, next time.Time, burst int) time.Duration {
	return min(max(next.Sub(now), 0), time.Duration(max(burst, 1))*r.interval())
}

// after returns Next after n more grants, in whole microseconds, as the databases store it.
func (r Rate) after(now, next time.Time, burst, n int) time.Time {
	at := now.Add(r.ahead(now, next, burst) + time.Duration(n)*r.interval())
	if rest := at.Nanosecond() % 1000; rest > 0 {
		at = at.Add(time.Duration(1000 - rest))
	}
	return at
}
