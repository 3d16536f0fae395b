package cli

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// TestHeapRoom: a small heap is collected seldom, and one that has grown as often as a worker can afford.
func TestHeapRoom(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	leaveHeapRoom()
	now := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	until := func(what string, ok func(percent uint64) bool) {
		t.Helper()
		began := time.Now()
		for metrics.Read(now); !ok(now[0].Value.Uint64()); metrics.Read(now) {
			if runtime.GC(); time.Since(began) > time.Minute {
				t.Fatalf("%s: the percentage is %d", what, now[0].Value.Uint64())
			}
		}
	}
	until("small heap", func(percent uint64) bool { return percent > leastPercent })
	live := make([]byte, 2*heapRoom)
	until("large heap", func(percent uint64) bool { return percent == leastPercent })
	runtime.KeepAlive(live)
}
