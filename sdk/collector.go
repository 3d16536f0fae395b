package sdk

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// heapRoom is how large the heap of a plugin's process may become before there is a collection. The live data is
// mostly small, and garbage is made with every item. By Go's own rule, a collection whenever the heap has doubled, a
// quarter of the time of such a process would go into collections.
const heapRoom = 32 << 20

// collector sets the percentage of the garbage collector after each collection: the heap may grow to heapRoom, or to
// twice what lives if that is more, as is usual. A percentage that anyone else has set stays. GOMEMLIMIT is in force
// beside it.
type collector struct{ percent uint64 }

// leaveHeapRoom begins with that, unless the environment has GOGC. It is for a process that does nothing else.
func leaveHeapRoom() {
	if os.Getenv("GOGC") == "" {
		(&collector{percent: 100}).adjust()
	}
}

func (c *collector) adjust() {
	now := []metrics.Sample{{Name: "/gc/gogc:percent"}, {Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"},
		{Name: "/gc/scan/globals:bytes"}}
	metrics.Read(now)
	if now[0].Value.Uint64() != c.percent {
		return
	}
	c.percent = percentFor(now[1].Value.Uint64(), now[2].Value.Uint64()+now[3].Value.Uint64())
	debug.SetGCPercent(int(c.percent))
	runtime.AddCleanup(&struct{ *collector }{c}, (*collector).adjust, c) // runs after the next collection
}

// percentFor is the percentage with which the heap grows to heapRoom. Go takes it of what lives and of what else is
// looked through, and 4 MiB at least.
func percentFor(live, besides uint64) uint64 {
	room := heapRoom - min(live, heapRoom)
	return max(100, room*100/max(live+besides, 4<<20))
}
