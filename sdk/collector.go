package sdk

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// heapRoom is how many bytes the heap of a process may have before it is collected. The live data of ledgerd and of
// a plugin is mostly small, and garbage is made with every item. By Go's own rule, a collection whenever the heap has
// doubled, a quarter of the time of a plugin's process would go into collections. With twice the room, ledgerd saves a
// tenth of its time and takes 30 MiB more.
const heapRoom = 32 << 20

// collector sets the percentage of the garbage collector after each collection: the heap may grow to heapRoom, or by
// least percent of the live heap if that is more. A percentage that other code has set stays, and so does GOMEMLIMIT.
type collector struct{ percent, least uint64 }

// LeaveHeapRoom lets the heap of this process grow to 32 MiB before it is collected, or by least percent of the live
// heap if that is more; 100 is Go's own rule. It does nothing if the environment has GOGC, and GOMEMLIMIT stays in
// force. It changes the whole process. Serve calls it with 100.
func LeaveHeapRoom(least uint64) {
	if os.Getenv("GOGC") == "" {
		(&collector{percent: 100, least: least}).adjust()
	}
}

func (c *collector) adjust() {
	now := []metrics.Sample{{Name: "/gc/gogc:percent"}, {Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"},
		{Name: "/gc/scan/globals:bytes"}}
	metrics.Read(now)
	if now[0].Value.Uint64() != c.percent {
		return
	}
	c.percent = percentFor(c.least, now[1].Value.Uint64(), now[2].Value.Uint64()+now[3].Value.Uint64())
	debug.SetGCPercent(int(c.percent))
	runtime.AddCleanup(&struct{ *collector }{c}, (*collector).adjust, c) // runs after the next collection
}

// percentFor is the percentage with which the heap grows to heapRoom, or least if that is more. Go applies it to the
// live heap and its roots (stacks and globals) together, and to 4 MiB at least.
func percentFor(least, live, roots uint64) uint64 {
	room := heapRoom - min(live, heapRoom)
	return max(least, room*100/max(live+roots, 4<<20))
}
