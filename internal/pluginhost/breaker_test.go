package pluginhost

import (
	"testing"
	"time"
)

func TestBreaker(t *testing.T) {
	now := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	var b breaker
	pause := func(least, most time.Duration) {
		t.Helper()
		if got := b.next.Sub(now); got < least || got > most {
			t.Errorf("pause %s, want %s … %s", got, least, most)
		}
	}
	for i, most := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second} {
		now = now.Add(time.Minute)
		if b.crashed(now) {
			t.Fatalf("open after %d crashes", i+1)
		}
		pause(most/2, most)
	}
	now = now.Add(time.Minute)
	if !b.crashed(now) || !b.probing {
		t.Fatal("not open after 5 crashes in 10 minutes")
	}
	pause(breakerPause, breakerPause)

	now = b.next // the probe crashes, too
	if !b.crashed(now) {
		t.Fatal("not open after the probe crashed")
	}
	pause(breakerPause, breakerPause)

	now = b.next // the next one does not
	b.worked()
	if b.probing {
		t.Error("probing after an item has ended")
	}
	if b.crashed(now) {
		t.Error("open after a single crash")
	}
	pause(restartBase/2, restartBase)
}

func TestBreakerForgets(t *testing.T) {
	now := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	var b breaker
	for i := range 50 {
		if b.crashed(now) {
			t.Fatalf("open after %d crashes, 3 minutes apart", i+1)
		}
		now = now.Add(3 * time.Minute)
	}
}
