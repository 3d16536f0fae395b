package api

import (
	"maps"
	"slices"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/ledger"
)

// mayBeat checks that the caller may write the heartbeat of an agent, and of kinds that it works besides. A token that
// is bound to kinds does not replace the heartbeat of an agent that works other kinds: without it, the leases of that
// agent would be taken.
func (c *Call) mayBeat(a ledger.Agent, kinds ...string) error {
	if err := c.mayWorkAs(a, slices.Concat(kinds, worked(a))...); err != nil || c.Grant.Kinds == nil {
		return err
	}
	known, err := c.Read.Heartbeats(c.Context())
	if err != nil {
		return err
	}
	for _, b := range known {
		kinds := worked(b)
		if b.Name == a.Name && (c.mayWorkAs(b, kinds...) != nil || len(kinds) == 0 && !b.SameProcess(a)) {
			return failure.New(failure.ExitDenied, "scope", "another program works as agent "+a.Name,
				"take another name: --name")
		}
	}
	return nil
}

// worked are the kinds that a heartbeat names.
func worked(a ledger.Agent) []string {
	return slices.Concat(slices.Collect(maps.Keys(a.Kinds)), slices.Collect(maps.Keys(a.Stalled)),
		slices.Collect(maps.Keys(a.Configs)), slices.Collect(maps.Keys(a.Plugins)))
}
