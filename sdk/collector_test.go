package sdk

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func percent() int {
	now := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(now)
	return int(now[0].Value.Uint64())
}

// collectUntil collects until the percentage is as it should be.
func collectUntil(t *testing.T, what string, ok func(percent int) bool) {
	t.Helper()
	for began := time.Now(); !ok(percent()); runtime.GC() {
		if time.Since(began) > time.Minute {
			t.Fatalf("%s: the percentage is %d", what, percent())
		}
	}
}

// TestHeapRoom: a small heap is collected seldom, a large heap by Go's own rule, and a heap that has shrunk seldom
// again. A percentage that the plugin sets itself stays.
func TestHeapRoom(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	LeaveHeapRoom(100)
	collectUntil(t, "small heap", func(p int) bool { return p > 100 })

	var live []byte
	live = make([]byte, 2*heapRoom)
	collectUntil(t, "large heap", func(p int) bool { return p == 100 })
	runtime.KeepAlive(live)
	live = nil
	collectUntil(t, "small heap again", func(p int) bool { return p > 100 })

	debug.SetGCPercent(150)
	for range 3 {
		runtime.GC()
	}
	if p := percent(); p != 150 {
		t.Errorf("150 became %d", p)
	}
	t.Setenv("GOGC", "100")
	debug.SetGCPercent(100)
	if LeaveHeapRoom(100); percent() != 100 {
		t.Errorf("GOGC=100 became %d", percent())
	}
}

// TestPercentFor: with the percentage, Go lets the heap grow to heapRoom, or by least percent of the live heap.
func TestPercentFor(t *testing.T) {
	for _, least := range []uint64{100, 200} {
		for _, live := range []uint64{0, 1 << 20, 5 << 20, 10 << 20, 31 << 20, 32 << 20, 500 << 20} {
			for _, besides := range []uint64{0, 1 << 20, 40 << 20} {
				p := percentFor(least, live, besides)
				grown := max(live+(live+besides)*p/100, 4<<20*p/100)
				most := max(heapRoom, live+(live+besides)*least/100)
				if low := most * 9 / 10; p < least || grown > most || grown < low && live > 4<<20 {
					t.Errorf("%d and %d bytes, at least %d: %d percent, so %d bytes", live, besides, least, p, grown)
				}
			}
		}
	}
}
