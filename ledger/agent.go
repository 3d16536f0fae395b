package ledger

import (
	"slices"
	"strings"
)

// withoutNumber is a name without the number at its end and the separator before it: "box-a" of "box-a/2",
// "links" of "links:17". A name that does not end so is itself.
func withoutNumber(name, separator string) string {
	if base, numbered := strings.CutSuffix(strings.TrimRight(name, "0123456789"), separator); numbered {
		return base
	}
	return name
}

// Namesakes are those of the live agents that are called like a, or have one of its numbered names,
// and are other processes. A heartbeat is of one process, so no two live ones may have the same name: one
// that is gone would take the leases of the other with it.
func (a Agent) Namesakes(live []Agent) []Agent {
	name := withoutNumber(a.Name, "/")
	return slices.DeleteFunc(slices.Clone(live), func(b Agent) bool {
		return b.SameProcess(a) || b.Name != name && withoutNumber(b.Name, "/") != name
	})
}

// SameProcess reports whether two agents are of one process.
func (a Agent) SameProcess(b Agent) bool {
	return a.Host == b.Host && a.PID == b.PID && a.Process == b.Process
}
