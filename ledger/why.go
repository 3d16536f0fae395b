package ledger

import (
	"fmt"
	"slices"
	"strings"
)

// working are the agents that work a kind.
func working(kind string, agents []Agent) []Agent {
	return slices.DeleteFunc(slices.Clone(agents), func(a Agent) bool { _, works := a.Kinds[kind]; return !works })
}

// shard is the part that claims something, as people write it.
func (s Shard) String() string { return fmt.Sprintf("%d/%d", s.Index, s.Count) }

// covers says whether a claim of this shard takes items of a slot.
func (s Shard) covers(slot int) bool { return s.Count == 0 || slot%s.Count == s.Index }

// whyReady explains an item that is ready, of a kind that some agents work.
func (r *Record) whyReady(it Item, workers []Agent) Reason {
	var shards []string
	for _, a := range workers {
		if a.Shard.covers(it.Slot) {
			return Reason{Code: "behind", Since: it.Due}
		}
		shards = append(shards, a.Shard.String())
	}
	slices.Sort(shards)
	mine := Shard{Index: it.Slot % workers[0].Shard.Count, Count: workers[0].Shard.Count}
	return Reason{Code: "shard", Since: it.Due,
		Text: fmt.Sprintf("It is ready, but nobody works its shard %s (slot %d): kind %s is worked by shards %s only.", mine, it.Slot, it.Kind, strings.Join(slices.Compact(shards), ", ")),
		Next: fmt.Sprintf("ledgerd work --kind %s --shard %s", it.Kind, mine)}
}

// behind says who comes to an item, and after what.
func behind(it Item, agents []Agent, ahead int64) string {
	workers := slices.DeleteFunc(working(it.Kind, agents), func(a Agent) bool { return !a.Shard.covers(it.Slot) })
	if len(workers) == 0 { // they have just gone
		return "It is ready."
	}
	who := workers[0].Name + " works this kind"
	if n := len(workers); n > 1 {
		who = fmt.Sprintf("%s and %d more work this kind", workers[0].Name, n-1)
	}
	switch {
	case ahead == 0:
		return fmt.Sprintf("It is ready and the next of its kind; %s.", who)
	case ahead >= StandingCap:
		return fmt.Sprintf("It is ready, behind at least %d others of its kind; %s.", ahead, who)
	case ahead == 1:
		return fmt.Sprintf("It is ready, behind 1 other of its kind; %s.", who)
	}
	return fmt.Sprintf("It is ready, behind %d others of its kind; %s.", ahead, who)
}
