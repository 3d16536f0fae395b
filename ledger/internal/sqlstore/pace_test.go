package sqlstore

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	start := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	p := Pace{Every: time.Second}
	due := func(after time.Duration, want bool) {
		t.Helper()
		if got := p.Due(start.Add(after)); got != want {
			t.Errorf("due %v after the last look: %v, want %v", after, got, want)
		}
	}
	due(0, true)
	p.Took(start, time.Millisecond)
	due(999*time.Millisecond, false)
	due(time.Second, true)
	due(-time.Second, true) // the clock was set back
	p.Took(start, time.Second)
	due(19*time.Second, false)
	due(20*time.Second, true)
	p.Every = 0
	due(0, true)
}
