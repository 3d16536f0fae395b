package api

import (
	"maps"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/ledger"
)

// mayBeat checks that the caller may write the heartbeat of an agent that also works kinds. A token that is bound to
// kinds may not replace the heartbeat of an agent that works other kinds: without it, others would take the leases of
// that agent.
func (c *Call) mayBeat(a ledger.Agent, kinds ...string) error {
	if err := c.mayWorkAs(a, slices.Concat(kinds, worked(a))...); err != nil || c.Grant.Kinds == nil {
		return err
	}
	known, err := c.Read.Heartbeats(c.Context())
	if err != nil {
		return err
	}
	i := slices.IndexFunc(known, func(b ledger.Agent) bool { return b.Name == a.Name })
	if i < 0 {
		return nil
	}
	before := known[i]
	if kinds := worked(before); len(kinds) > 0 && c.mayWorkAs(before, kinds...) == nil {
		return nil
	} else if len(kinds) == 0 {
		if before.SameProcess(a) {
			return nil
		}
		if holds, err := c.holds(a.Name); err != nil || !holds {
			return err
		}
	}
	return failure.New(failure.ExitDenied, "scope", "another program works as agent "+a.Name,
		"take another name: --name")
}

// holds reports whether an agent, or a worker NAME/… of it, has leases.
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
