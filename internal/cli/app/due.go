package app

import (
	"time"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/ledger/recurrence"
)

// ParseDue reads the time of --due: a duration from now, a time, or now.
func ParseDue(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if text == "now" {
		return time.Now(), nil
	}
	if d, err := recurrence.ParseDuration(text); err == nil {
		return time.Now().Add(d), nil
	}
	if at, err := recurrence.ParseTime(text); err == nil {
		return at, nil
	}
	return time.Time{}, failure.Usage("bad_flag", "", "--due %s: neither a duration (2h, 7d) nor a time (2026-11-20, "+
		"2026-11-20T10:00:00Z)", text)
}
