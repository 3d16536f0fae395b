package sdk

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

// TestHeapRoom: the heap may grow to 32 MiB, with a limit of memory not to that limit. GOGC of the user stays in force.
func TestHeapRoom(t *testing.T) {
	defer func() { ballast = nil }()
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	t.Setenv("GOGC", "100")
	if LeaveHeapRoom(); ballast != nil {
		t.Errorf("with GOGC the ballast is %d", len(ballast))
	}
	t.Setenv("GOGC", "")
	LeaveHeapRoom()
	runtime.GC()
	goal := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	if metrics.Read(goal); goal[0].Value.Uint64() < 32<<20 {
		t.Errorf("the heap grows to %d bytes", goal[0].Value.Uint64())
	}
	debug.SetMemoryLimit(64 << 20)
	if LeaveHeapRoom(); len(ballast) != 4<<20 {
		t.Errorf("of a limit of 64 MiB the ballast takes %d bytes", len(ballast))
	}
}
