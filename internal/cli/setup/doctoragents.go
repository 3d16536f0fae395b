package setup

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/finding"
)

// killed warns of programs whose heartbeat expired and that did not sign off, unless a program of the same name works
// now, or a program on the same host has started since.
func killed(lapsed, live []ledger.Agent) (all []finding.Finding) {
	for _, g := range lapsed {
		if slices.ContainsFunc(live, func(a ledger.Agent) bool { return a.Host == g.Host && a.StartedAt.After(g.SeenAt) }) ||
			len(g.Namesakes(live)) > 0 {
			continue
		}
		all = append(all, finding.Warning("agents", fmt.Sprintf("%s (host %s, pid %d) has given no sign since %s and did not "+
			"say goodbye", g.Name, g.Host, g.PID, report.Local(g.SeenAt)),
			"it was killed, or its machine is down or cut off; its kinds may be without a worker",
			"its log, and that of the system, tell why; start it there again; this is forgotten after a day"))
	}
	return all
}

// lastError describes the newest crash or failed start of a kind's plugin on the machine of an agent; "" if there was
// none.
func lastError(g ledger.Agent, kind string) string {
	p := g.Plugins[kind]
	if p.Code == "" {
		return ""
	}
	return fmt.Sprintf(" (%s, %s)", report.Safe(cmp.Or(p.Error, p.Code)), report.Local(p.ErrorAt))
}
