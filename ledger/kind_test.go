package ledger

import (
	"testing"
	"time"
)

func TestDelayHasACap(t *testing.T) {
	if got := (Kind{Backoff: Backoff{Base: time.Hour}}).delay(1, 1); got != time.Hour {
		t.Errorf("with a base beyond the default cap: %v", got)
	}
	k := Kind{Backoff: Backoff{Base: time.Second, Cap: time.Minute}}
	for n, want := range map[int]time.Duration{1: 2 * time.Second, 3: 8 * time.Second, 6: time.Minute, 31: time.Minute,
		1000: time.Minute} {
		if got := k.delay(n, 1); got != want {
			t.Errorf("after %d failures: %v, want %v", n, got, want)
		}
		if got := k.delay(n, 0); got != 0 {
			t.Errorf("after %d failures, lucky: %v", n, got)
		}
	}
}
