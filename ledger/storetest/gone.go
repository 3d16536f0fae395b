package storetest

import (
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// goneProcess is the name of a process that does not run any more.
const goneProcess = "gone"

func gone(a ledger.Agent) bool { return a.Process == goneProcess }

// beats writes the heartbeat of an agent.
func (h *harness) beats(agent, process string, ttl time.Duration) {
	h.t.Helper()
	h.ok(h.l.Beat(h.ctx, ledger.Agent{Name: agent, Process: process, Kinds: map[string]string{"k": ""}}, ttl))
}

func (h *harness) expireGone() int {
	h.t.Helper()
	n, err := h.l.ExpireGone(h.ctx)
	h.ok(err)
	return n
}

// takenBy claims one item of a kind for an agent.
func (h *harness) takenBy(agent, kind string) *ledger.Lease {
	h.t.Helper()
	ls, err := h.l.Claim(h.ctx, ledger.Claim{Kind: kind, Agent: agent, Limit: 1, TTL: time.Minute})
	h.ok(err)
	if len(ls) != 1 {
		h.t.Fatalf("%d leases", len(ls))
	}
	return ls[0]
}

// goneGivesBack: the leases of a process that is known to be gone end at once, by the rules of expired leases. All
// other leases stay.
func goneGivesBack(t *testing.T, h *harness) {
	h.policy(ledger.Kind{Name: "mail", OnLost: ledger.OnLostDoubt})
	h.beats("dead", "1", time.Minute)
	h.beats("alive", "2", time.Minute)
	h.beats("dumb", "", time.Minute)
	h.addMany(5)
	h.add(ledger.NewItem{Kind: "mail", Key: "started"}, ledger.NewItem{Kind: "mail", Key: "not started"})
	lost := h.takenBy("dead", "k")
	kept := []*ledger.Lease{h.takenBy("alive", "k"), h.takenBy("dumb", "k"), h.takenBy("ann", "k")}
	started, unstarted := h.takenBy("dead", "mail"), h.takenBy("dead", "mail")
	h.ok(h.l.Start(h.ctx, time.Minute, started)[0])
	asked := h.takenBy("dead", "k")
	_, err := h.l.Cancel(h.ctx, "ann", ledger.IDs(asked.ID))
	h.ok(err)

	equal(t, "taken while all live", h.expireGone(), 0)
	h.beats("dead", goneProcess, time.Minute)
	h.clock.advance(time.Second)
	equal(t, "taken", h.expireGone(), 4)
	equal(t, "taken again", h.expireGone(), 0)
	if it := h.wantState(lost.ID, ledger.StateReady); it.Losses != 1 || it.Failures != 0 || it.Crashes != 0 ||
		it.Code != "process_gone" {
		t.Errorf("%+v", it)
	}
	equal(t, "outcomes", h.outcomes(lost.ID), []ledger.Outcome{ledger.OutcomeLost})
	h.wantState(started.ID, ledger.StateDoubt)
	h.wantState(unstarted.ID, ledger.StateReady)
	h.wantState(asked.ID, ledger.StateCancelled)
	for _, ls := range kept {
		h.wantState(ls.ID, ledger.StateLeased)
	}
	h.is(h.finish(lost, ledger.Done(nil)), ledger.ErrLeaseLost)
	holders, err := h.l.Holders(h.ctx, ledger.Filter{Kinds: []string{"k"}}, func(it ledger.Item) bool {
		return it.ID != kept[1].ID
	})
	h.ok(err)
	equal(t, "holders", holders, []ledger.Holder{{Agent: "alive", Items: 1, Until: kept[0].ExpiresAt},
		{Agent: "ann", Items: 1, Until: kept[2].ExpiresAt, Person: true}})
	holders, err = h.l.Holders(h.ctx, ledger.Filter{States: []ledger.State{ledger.StateReady}}, func(ledger.Item) bool {
		return true
	})
	h.ok(err)
	equal(t, "holders of nothing", len(holders), 0)
	agents, err := h.l.Agents(h.ctx)
	h.ok(err)
	if len(agents) != 2 || agents[0].Name != "alive" || agents[1].Name != "dumb" {
		t.Errorf("%+v", agents)
	}
	st, err := h.l.Standing(h.ctx, "k")
	h.ok(err)
	equal(t, "held", st.Held, 2)
	equal(t, "of people", st.Persons, 1)
}

// goneAndBack: an expired heartbeat is kept while its agent holds leases, so that they can be ended. All leases of a
// gone process end, however many they are. Those of a new process with the same name stay.
func goneAndBack(t *testing.T, h *harness) {
	h.addMany(250)
	h.beats("dead", goneProcess, time.Second)
	ls, err := h.l.Claim(h.ctx, ledger.Claim{Kind: "k", Agent: "dead", Limit: 240, TTL: time.Hour})
	h.ok(err)
	h.clock.advance(time.Minute)
	h.beats("other", "1", time.Minute)
	equal(t, "taken", h.expireGone(), len(ls))

	late := h.takenBy("dead", "k") // its call arrives late
	equal(t, "taken late", h.expireGone(), 1)
	h.wantState(late.ID, ledger.StateReady)

	h.beats("dead", "2", time.Minute)
	mine := h.takenBy("dead", "k")
	equal(t, "taken of the next one", h.expireGone(), 0)
	h.wantState(mine.ID, ledger.StateLeased)
}
