package app

import (
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/failure"
)

func TestParseDue(t *testing.T) {
	if at, err := ParseDue("2h"); err != nil || time.Until(at) > 2*time.Hour || time.Until(at) < time.Hour {
		t.Errorf("%s, %v", at, err)
	}
	want := time.Date(2026, 11, 20, 10, 30, 0, 0, time.Local)
	for _, text := range []string{"2026-11-20 10:30", "2026-11-20T10:30", "2026-11-20 10:30:00",
		"2026-11-20T10:30:00", want.Format(time.RFC3339)} {
		if at, err := ParseDue(text); err != nil || !at.Equal(want) {
			t.Errorf("%s: %s, %v", text, at, err)
		}
	}
	if _, err := ParseDue("tomorrow"); err == nil || failure.Explain(err).Exit != failure.ExitUsage {
		t.Error(err)
	}
}
