package ledger

import (
	"slices"
	"strings"
)

// withoutNumber returns a name without the separator and the number at its end: "box-a" for "box-a/2", "links" for
// "links:17". Other names stay as they are.
func withoutNumber(name, separator string) string {
	if base, numbered := strings.CutSuffix(strings.TrimRight(name, "0123456789"), separator); numbered {
		return base
	}
	return name
}

// Namesakes returns the live agents of other processes that have the name of a, without regard to numbers at the end.
// No two live processes may have the same name: the end of one would release the leases of the other.
func (a Agent) Namesakes(live []Agent) []Agent {
	name := withoutNumber(a.Name, "/")
	return slices.DeleteFunc(slices.Clone(live), func(b Agent) bool {
		return b.SameProcess(a) || b.Name != name && withoutNumber(b.Name, "/") != name
	})
}

// SameProcess reports whether both agents belong to the same process.
func (a Agent) SameProcess(b Agent) bool {
	return a.Host == b.Host && a.PID == b.PID && a.Process == b.Process
}
