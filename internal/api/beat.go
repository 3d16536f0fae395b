package api

import (
	"maps"
	"slices"
	"strings"

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
		switch kinds := worked(b); {
		case b.Name != a.Name, len(kinds) > 0 && c.mayWorkAs(b, kinds...) == nil, len(kinds) == 0 && b.SameProcess(a):
			continue
		case len(kinds) == 0:
			if holds, err := c.holds(b.Name); err != nil || !holds {
				return err
			}
		}
		return failure.New(failure.ExitDenied, "scope", "another program works as agent "+a.Name,
			"take another name: --name")
	}
	return nil
}

// holds reports whether an agent, or one of its workers, has leases.
func (c *Call) holds(name string) (bool, error) {
	leased, err := c.Read.LeasedBy(c.Context())
	for agent := range leased {
		if agent == name || strings.HasPrefix(agent, name+"/") {
			return true, err
		}
	}
	return false, err
}

// worked are the kinds that a heartbeat names.
func worked(a ledger.Agent) []string {
	return slices.Concat(slices.Collect(maps.Keys(a.Kinds)), slices.Collect(maps.Keys(a.Stalled)),
		slices.Collect(maps.Keys(a.Configs)), slices.Collect(maps.Keys(a.Plugins)))
}
