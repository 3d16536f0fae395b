package recurrence

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	maxYears = 100
	longest  = maxYears * 366 * 24 * time.Hour
)

// ParseDuration is time.ParseDuration with days ("7d") and weeks ("2w") as well. Days and weeks are whole numbers and
// come before the other units ("1d12h"). A negative duration is an error.
func ParseDuration(s string) (time.Duration, error) {
	var total time.Duration
	rest := s
	for rest != "" {
		i := strings.IndexAny(rest, "dw")
		if i < 0 {
			break
		}
		n, err := strconv.ParseUint(rest[:i], 10, 16)
		if err != nil {
			return 0, fmt.Errorf("%q is not a duration, such as 90s, 36h, 7d", s)
		}
		if rest[i] == 'w' {
			n *= 7
		}
		if n > 366*maxYears || total+time.Duration(n)*24*time.Hour > longest {
			return 0, fmt.Errorf("%q is longer than %d years", s, maxYears)
		}
		total += time.Duration(n) * 24 * time.Hour
		rest = rest[i+1:]
	}
	if rest == "" && s != "" {
		return total, nil
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d < 0 || d > longest {
		return 0, fmt.Errorf("%q is not a duration, such as 90s, 36h, 7d", s)
	}
	return total + d, nil
}

// ParseTime reads a moment: RFC 3339, a day, or a day and a clock with or without seconds, as in 2026-11-20 10:00 and
// 2026-11-20T10:00. Without a time zone it is local time.
func ParseTime(s string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, time.DateOnly, time.DateTime, "2006-01-02T15:04:05", "2006-01-02 15:04",
		"2006-01-02T15:04"} {
		if at, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time, such as 2026-11-20, 2026-11-20T10:00, 2026-11-20T10:00:00Z", s)
}
