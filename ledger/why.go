package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger/act"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// working returns the agents that work a kind.
func working(kind string, agents []Agent) []Agent {
	return slices.DeleteFunc(slices.Clone(agents), func(a Agent) bool { _, works := a.Kinds[kind]; return !works })
}

// whyReady explains a ready item of a kind that some agents work.
func whyReady(it Item, workers []Agent, now time.Time) Reason {
	var shards, stalled []string
	var until time.Time // when the first stalled agent tries again
	for _, a := range workers {
		shards = append(shards, a.Shard.String())
		again := a.Stalled[it.Kind]
		switch {
		case !a.Shard.Covers(it.Slot):
			continue
		case !again.After(now):
			return Reason{Code: "behind", Since: it.Due}
		case until.IsZero() || again.Before(until):
			until = again
		}
		stalled = append(stalled, a.Name)
	}
	if len(stalled) > 0 {
		return whyStalled(it, stalled, until)
	}
	slices.Sort(shards)
	mine := scheduler.Shard{Index: it.Slot % workers[0].Shard.Count, Count: workers[0].Shard.Count}
	return Reason{Code: "shard", Since: it.Due,
		Text: fmt.Sprintf("It is ready, but no agent works its shard %s (slot %d): kind %s is worked by shards %s only.", mine,
			it.Slot, it.Kind, strings.Join(slices.Compact(shards), ", ")),
		Acts: []act.Act{{Name: act.Work, Kind: it.Kind, Shard: mine.String()}}}
}

// whySnoozed explains an item that its handler snoozed.
func (r *Record) whySnoozed(it Item, now time.Time) Reason {
	w := Reason{Code: "due", Since: it.EndedAt, Until: it.Due}
	if r.retried(now) {
		w.Acts = []act.Act{it.retry()}
	}
	reason := cmp.Or(it.Code, it.Error)
	if reason != "" {
		reason = " (" + reason + ")"
	}
	w.Text = fmt.Sprintf("Attempt %d was put off by its handler%s; it goes on at %s.", it.Attempt, reason, inUTC(it.Due))
	return w
}

// whyStalled explains a ready item whose plugin crashes again and again for all agents.
func whyStalled(it Item, agents []string, until time.Time) Reason {
	who := agents[0]
	if n := len(agents); n > 1 {
		who = fmt.Sprintf("%s and %d more", who, n-1)
	}
	return Reason{Code: "breaker", Since: it.Due, Until: until, Acts: []act.Act{{Name: act.ShowErrors, Kind: it.Kind}},
		Text: fmt.Sprintf("It is ready, but the plugin of kind %s crashes again and again where it is worked (%s); it is "+
			"tried again at %s.", it.Kind, who, inUTC(until))}
}

// inUTC writes a time for sentences, with its zone: they are read on other machines, too.
func inUTC(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") }

// behind returns a sentence about a ready item: how many items are claimed before it, and the agents that work its
// kind.
func behind(it Item, agents []Agent, now time.Time, ahead int64) string {
	workers := slices.DeleteFunc(working(it.Kind, agents), func(a Agent) bool {
		return !a.Shard.Covers(it.Slot) || a.Stalled[it.Kind].After(now)
	})
	if len(workers) == 0 { // all workers have gone since
		return "It is ready."
	}
	who := workers[0].Name + " works this kind"
	if n := len(workers); n > 1 {
		who = fmt.Sprintf("%s and %d more work this kind", workers[0].Name, n-1)
	}
	switch {
	case ahead == 0:
		return fmt.Sprintf("It is ready and the next of its kind; %s.", who)
	case ahead >= stats.StandingCap:
		return fmt.Sprintf("It is ready, behind at least %d others of its kind; %s.", ahead, who)
	case ahead == 1:
		return fmt.Sprintf("It is ready, behind 1 other of its kind; %s.", who)
	}
	return fmt.Sprintf("It is ready, behind %d others of its kind; %s.", ahead, who)
}
