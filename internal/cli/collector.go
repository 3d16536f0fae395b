package cli

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// heapRoom is how large the heap may become before there is a collection. A worker keeps a few MiB, and its
// garbage lives for one batch. By Go's own rule, a collection whenever the heap has doubled, it would collect all
// the time; with twice the room it saves a tenth of its time and takes 30 MiB more.
const heapRoom = 32 << 20

// leastPercent is what a heap that is larger may grow by: twice as much as by Go's own rule.
const leastPercent = 200

// collector sets the percentage of the garbage collector after each collection: the heap may grow to heapRoom, or
// by leastPercent of what lives if that is more. A percentage that anyone else has set stays. GOMEMLIMIT is in
// force beside it. Package sdk has the like for the processes of plugins.
type collector struct{ percent uint64 }

// leaveHeapRoom begins with that, unless the environment has GOGC.
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

// percentFor is the percentage with which the heap grows to heapRoom. Go takes it of what lives and of what else
// is looked through, and 4 MiB at least.
func percentFor(live, besides uint64) uint64 {
	room := heapRoom - min(live, heapRoom)
	return max(leastPercent, room*100/max(live+besides, 4<<20))
}
