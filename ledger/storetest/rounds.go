package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

var roundCases = []storeCase{
	{"RoundStates", roundStates},
	{"RecurringChanged", recurringChanged},
	{"RecurringAgain", recurringAgain},
	{"RecurringLater", recurringLater},
	{"RoundNews", roundNews},
}

// roundStates: items, filters, counts and groups agree about the state of an item's current round. When the next
// period begins, the round is open for every reader at once.
func roundStates(t *testing.T, h *harness) {
	h.policy(ledger.Kind{Name: "k", OnLost: ledger.OnLostDoubt, MaxFailures: 2})
	ids := map[string]int64{}
	add := func(key, every string, end func(ls *ledger.Lease)) {
		ids[key] = h.add(ledger.NewItem{Kind: "k", Key: key, Every: every})[0].ID
		if end != nil {
			end(h.claimOne("k"))
		}
	}
	with := func(r ledger.Result) func(*ledger.Lease) { return func(ls *ledger.Lease) { h.end(ls, r) } }
	for _, every := range []string{"", "day"} {
		add("done"+every, every, with(ledger.Done(nil)))
		add("skipped"+every, every, with(ledger.Skip("nothing")))
		add("failed"+every, every, with(ledger.Permanent(errTest)))
		add("tried"+every, every, with(ledger.RetryAfter(time.Hour, errTest)))
		add("snoozed"+every, every, with(ledger.Snooze(time.Hour, "")))
		add("doubt"+every, every, with(ledger.Doubt(errTest)))
		add("leased"+every, every, func(*ledger.Lease) {})
	}
	ids["later"] = h.add(ledger.NewItem{Kind: "k", Key: "later", Every: "day", Due: start.Add(time.Hour)})[0].ID
	ids["gone"] = h.add(ledger.NewItem{Kind: "k", Key: "gone", Every: "day"})[0].ID
	n, err := h.l.Cancel(h.ctx, "ann", ledger.IDs(ids["gone"]))
	h.ok(err)
	equal(t, "cancelled", n, 1)

	h.rounds(ids, map[ledger.RoundState][]string{
		ledger.RoundDone:      {"done", "skipped", "doneday", "skippedday"},
		ledger.RoundFailed:    {"failed", "failedday"},
		ledger.RoundDoubt:     {"doubt", "doubtday"},
		ledger.RoundCancelled: {"gone"},
		ledger.RoundOpen:      {"tried", "snoozed", "leased", "triedday", "snoozedday", "leasedday", "later"},
	})
	equal(t, "the round that is over", h.item(ids["failedday"]).Round, "2026-11-20")
	counts, err := h.l.Counts(h.ctx, start)
	h.ok(err)
	equal(t, "of those that wait", [3]int64{counts[0].RoundsDone, counts[0].RoundsFailed, counts[0].Waiting},
		[3]int64{2, 1, 8})

	h.clock.advance(14 * time.Hour) // midnight, and no sweep yet
	h.rounds(ids, map[ledger.RoundState][]string{
		ledger.RoundDone:      {"done", "skipped"},
		ledger.RoundFailed:    {"failed"},
		ledger.RoundDoubt:     {"doubt", "doubtday"},
		ledger.RoundCancelled: {"gone"},
		ledger.RoundOpen: {"tried", "snoozed", "leased", "triedday", "snoozedday", "leasedday", "later",
			"doneday", "skippedday", "failedday"},
	})
	equal(t, "the round that has begun", h.item(ids["failedday"]).Round, "2026-11-21")
	counts, err = h.l.Counts(h.ctx, start)
	h.ok(err)
	equal(t, "of those that wait", [2]int64{counts[0].RoundsDone, counts[0].RoundsFailed}, [2]int64{0, 0})
}

// rounds checks the states of rounds in every way that reads them.
func (h *harness) rounds(ids map[string]int64, want map[ledger.RoundState][]string) {
	h.t.Helper()
	var group stats.Group
	for _, state := range ledger.RoundStates {
		f := ledger.Filter{Kinds: []string{"k"}, Rounds: []ledger.RoundState{state}}
		var got []int64
		for it, err := range h.l.List(h.ctx, f, 0) {
			h.ok(err)
			got = append(got, it.ID)
			equal(h.t, it.Key, it.RoundState, state)
		}
		wanted := map[int64]bool{}
		for _, key := range want[state] {
			wanted[ids[key]] = true
		}
		if len(got) != len(wanted) {
			h.t.Errorf("round:%s finds items %v, want %v of %v", state, got, want[state], ids)
		}
		for _, id := range got {
			if !wanted[id] {
				h.t.Errorf("round:%s finds item %d", state, id)
			}
		}
		n, err := h.l.Count(h.ctx, f)
		h.ok(err)
		equal(h.t, "count of round:"+string(state), n, int64(len(wanted)))
		switch state {
		case ledger.RoundOpen:
			group.Left = n
		case ledger.RoundDone:
			group.Done = n
		case ledger.RoundFailed:
			group.Failed = n
		case ledger.RoundDoubt:
			group.Doubt = n
		case ledger.RoundCancelled:
			group.Cancelled = n
		case ledger.RoundPutOff:
			group.PutOff = n
		}
	}
	for news, n := range map[ledger.RoundState]*int64{ledger.RoundNewlyFailed: &group.NewlyFailed,
		ledger.RoundRecovered: &group.Recovered} {
		var err error
		*n, err = h.l.Count(h.ctx, ledger.Filter{Kinds: []string{"k"}, Rounds: []ledger.RoundState{news}})
		h.ok(err)
	}
	groups, _, err := h.l.Groups(h.ctx, ledger.Filter{Kinds: []string{"k"}}, stats.ByKind, 0)
	h.ok(err)
	group.Value = ledger.JSON("k")
	equal(h.t, "groups", groups, []stats.Group{group})
}

// recurringChanged: a version that arrives after its period was worked is worked in the same period, in another
// opening.
func recurringChanged(t *testing.T, h *harness) {
	n := ledger.NewItem{Kind: "k", Key: "x", Every: "day", Fingerprint: "1", Payload: []byte("p1")}
	id := h.add(n)[0].ID
	newer := func(state ledger.State) {
		t.Helper()
		n.Fingerprint += "+"
		n.Payload = []byte("p" + n.Fingerprint)
		equal(t, "changed", h.add(n)[0], ledger.Added{ID: id, Verdict: ledger.VerdictChanged, State: state})
		equal(t, "and then known", h.add(n)[0].Verdict, ledger.VerdictKnown)
	}
	keys := map[string]bool{}
	work := func(r ledger.Result) {
		t.Helper()
		ls := h.claimOne("k")
		if keys[ls.IdempotencyKey()] || ls.Round != "2026-11-20" || string(ls.Payload) != string(n.Payload) {
			t.Fatalf("round %s, idempotency key %s, payload %s, want %s", ls.Round, ls.IdempotencyKey(), ls.Payload, n.Payload)
		}
		keys[ls.IdempotencyKey()] = true
		h.end(ls, r)
	}
	newer(ledger.StateReady) // before the first attempt: the same opening
	work(ledger.Done(nil))
	equal(t, "done", h.item(id).RoundState, ledger.RoundDone)
	newer(ledger.StateReady)
	equal(t, "open again", h.item(id).RoundState, ledger.RoundOpen)
	work(ledger.Permanent(errTest))
	equal(t, "failed", h.item(id).RoundState, ledger.RoundFailed)
	newer(ledger.StateReady)
	work(ledger.Fail(errTest)) // it waits for a retry
	newer(ledger.StateReady)
	equal(t, "failures of the version before", h.item(id).Failures, 0)

	ls := h.claimOne("k")
	keys[ls.IdempotencyKey()] = true
	newer(ledger.StateLeased)
	h.end(ls, ledger.Done(nil))
	h.wantState(id, ledger.StateReady)
	work(ledger.Done(nil))
	equal(t, "done", h.item(id).RoundState, ledger.RoundDone)
	equal(t, "openings", len(keys), 5)
	h.pass(14 * time.Hour)
	ls = h.claimOne("k")
	equal(t, "round", ls.Round, "2026-11-21")
	h.end(ls, ledger.Done(nil))
	equal(t, "outcomes", h.outcomes(id), []ledger.Outcome{ledger.OutcomeDone, ledger.OutcomeFailed, ledger.OutcomeFailed,
		ledger.OutcomeDone, ledger.OutcomeDone, ledger.OutcomeDone})
	n.Every, n.Fingerprint = "week", "2" // a new schedule and a new version at once
	equal(t, "changed", h.add(n)[0].State, ledger.StateReady)
}

// recurringAgain: a finished round is opened again only where the caller asks for it.
func recurringAgain(t *testing.T, h *harness) {
	n := ledger.NewItem{Kind: "k", Key: "x", Every: "day"}
	id := h.add(n)[0].ID
	h.end(h.claimOne("k"), ledger.Done(nil))
	n.Again = ledger.Again{Dead: true, Cancelled: true}
	equal(t, "named", h.add(n)[0].Verdict, ledger.VerdictKnown)
	n.Again.DoneBefore = start
	equal(t, "done since", h.add(n)[0].Verdict, ledger.VerdictKnown)
	n.Again.DoneBefore = start.Add(time.Hour)
	equal(t, "again", h.add(n)[0], ledger.Added{ID: id, Verdict: ledger.VerdictReopened, State: ledger.StateReady})
	h.end(h.claimOne("k"), ledger.Permanent(errTest))
	n.Again.DoneBefore = time.Time{}
	equal(t, "failed, and named", h.add(n)[0].Verdict, ledger.VerdictKnown)
	n.Again.DoneBefore = start.Add(time.Hour)
	equal(t, "failed, again", h.add(n)[0].Verdict, ledger.VerdictReopened)
	h.end(h.claimOne("k"), ledger.Done(nil))
	reopened, err := h.l.Reopen(h.ctx, "ann", ledger.Filter{Rounds: []ledger.RoundState{ledger.RoundDone}})
	h.ok(err)
	equal(t, "reopened", reopened, 1)
	ls := h.claimOne("k")
	byToken, err := h.l.Lease(h.ctx, ls.ID, ls.Attempt)
	h.ok(err)
	equal(t, "idempotency key by the token", byToken.IdempotencyKey(), ls.IdempotencyKey())
	h.end(ls, ledger.Done(nil))
	byToken, err = h.l.Lease(h.ctx, ls.ID, ls.Attempt)
	h.ok(err)
	equal(t, "and after its end", byToken.IdempotencyKey(), ls.IdempotencyKey())
	equal(t, "outcomes", h.outcomes(id), []ledger.Outcome{ledger.OutcomeDone, ledger.OutcomeFailed, ledger.OutcomeDone,
		ledger.OutcomeDone})
}

// recurringLater: a finished round that is opened again for later is open at once.
func recurringLater(t *testing.T, h *harness) {
	n := ledger.NewItem{Kind: "k", Key: "x", Every: "day", Fingerprint: "1"}
	ids := map[string]int64{"x": h.add(n)[0].ID}
	open := func(round string) {
		t.Helper()
		h.rounds(ids, map[ledger.RoundState][]string{ledger.RoundOpen: {"x"}})
		equal(t, "round", h.item(ids["x"]).Round, round)
		counts, err := h.l.Counts(h.ctx, start)
		h.ok(err)
		equal(t, "of what waits", [3]int64{counts[0].RoundsDone, counts[0].RoundsFailed, counts[0].Waiting},
			[3]int64{0, 0, 1})
	}
	h.end(h.claimOne("k"), ledger.Done(nil))
	n.Due = start.Add(time.Hour)
	n.Fingerprint = "2"
	equal(t, "changed", h.add(n)[0].Verdict, ledger.VerdictChanged)
	open("2026-11-20")
	n.Fingerprint = "3"
	equal(t, "changed before it was tried", h.add(n)[0].Verdict, ledger.VerdictChanged)
	open("2026-11-20")
	h.pass(time.Hour)
	h.end(h.claimOne("k"), ledger.Permanent(errTest))
	n.Due = start.Add(24 * time.Hour)
	n.Again.DoneBefore = start.Add(24 * time.Hour)
	equal(t, "failed, again", h.add(n)[0].State, ledger.StateWaiting)
	open("2026-11-21")
	equal(t, "before its time", len(h.claim("k", 1)), 0)
	h.pass(24 * time.Hour)
	h.end(h.claimOne("k"), ledger.Done(nil))
	n.Due, n.Again.DoneBefore = start.Add(48*time.Hour), start.Add(48*time.Hour)
	equal(t, "again", h.add(n)[0].Verdict, ledger.VerdictReopened)
	open("2026-11-22")
}

// roundNews: filters find items whose round ended otherwise than the one before, while the round is current. An item
// added in this round has no round before.
func roundNews(t *testing.T, h *harness) {
	results := map[string][3]ledger.Result{ // by day
		"always": {ledger.Permanent(errTest), ledger.Permanent(errTest), ledger.Done(nil)},
		"broken": {ledger.Done(nil), ledger.Permanent(errTest), ledger.Permanent(errTest)},
		"mended": {ledger.Permanent(errTest), ledger.Done(nil), ledger.Done(nil)},
		"new":    {{}, ledger.Permanent(errTest), ledger.Done(nil)},
		"well":   {ledger.Done(nil), ledger.Skip("as before"), ledger.Permanent(errTest)},
	}
	find := func(news ledger.RoundState) (keys []string) {
		t.Helper()
		for it, err := range h.l.List(h.ctx, ledger.Filter{Kinds: []string{"k"}, Rounds: []ledger.RoundState{news}}, 0) {
			h.ok(err)
			keys = append(keys, it.Key)
		}
		slices.Sort(keys)
		return keys
	}
	for day, want := range [][2][]string{{}, {{"broken"}, {"mended"}}, {{"well"}, {"always", "new"}}} {
		for key, r := range results {
			if r[day].Outcome != "" {
				h.add(ledger.NewItem{Kind: "k", Key: key, Every: "day", Payload: []byte(`{"a":1}`)})
			}
		}
		for _, ls := range h.claim("k", 10) {
			h.end(ls, results[ls.Key][day])
		}
		equal(t, "newly failed", find(ledger.RoundNewlyFailed), want[0])
		equal(t, "recovered", find(ledger.RoundRecovered), want[1])
		field := ledger.FieldTerm{Of: "payload", Path: []string{"a"}, Op: ":", Values: []string{"1"}}
		for _, f := range []ledger.Filter{{}, {Fields: []ledger.FieldTerm{field}}} {
			groups, _, err := h.l.Groups(h.ctx, f, stats.ByKind, 0)
			h.ok(err)
			equal(t, "both, counted", [2]int64{groups[0].NewlyFailed, groups[0].Recovered},
				[2]int64{int64(len(want[0])), int64(len(want[1]))})
		}
		h.pass(24 * time.Hour)
		equal(t, "newly failed, of a round that has begun", len(find(ledger.RoundNewlyFailed)), 0)
		equal(t, "recovered, of a round that has begun", len(find(ledger.RoundRecovered)), 0)
	}
}
