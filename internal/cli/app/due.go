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
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04", "2006-01-02T15:04", "2006-01-02"} {
		if at, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return at, nil
		}
	}
	return time.Time{}, failure.Usage("bad_flag", "", "--due %s: neither a duration (2h, 7d) nor a time (2026-11-20, "+
		"2026-11-20T10:00:00Z)", text)
}
