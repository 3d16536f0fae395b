package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

func recurringDaily(t *testing.T, h *harness) {
	id := h.add(ledger.NewItem{Kind: "k", Key: "x", Every: "day", Zone: "Europe/Berlin"})[0].ID
	ls := h.claimOne("k")
	equal(t, "round", ls.Round, "2026-11-20")
	key := ls.IdempotencyKey()
	h.end(ls, ledger.Done([]byte("x")))
	it := h.wantState(id, ledger.StateWaiting)
	equal(t, "midnight in Berlin", it.Due.UTC(), time.Date(2026, 11, 20, 23, 0, 0, 0, time.UTC))
	h.pass(13*time.Hour - time.Second)
	equal(t, "not yet", len(h.claim("k", 1)), 0)
	h.pass(time.Second)
	ls = h.claimOne("k")
	if ls.Round != "2026-11-21" || ls.IdempotencyKey() == key {
		t.Fatalf("round %s, idempotency key %s", ls.Round, ls.IdempotencyKey())
	}
	h.end(ls, ledger.Done(nil))
	h.pass(72 * time.Hour) // no worker for days: missed periods are not made up for
	ls = h.claimOne("k")
	equal(t, "round", ls.Round, "2026-11-24")
	h.end(ls, ledger.Skip("nothing new"))
	it = h.wantState(id, ledger.StateWaiting)
	equal(t, "due", it.Due.UTC(), time.Date(2026, 11, 24, 23, 0, 0, 0, time.UTC))
	h.pass(24 * time.Hour)
	ls = h.claimOne("k")
	h.clock.advance(24 * time.Hour) // midnight passes while it is worked
	h.end(ls, ledger.Done(nil))
	h.pass(0)
	ls = h.claimOne("k")
	equal(t, "round", ls.Round, "2026-11-26")
	h.end(ls, ledger.Done(nil))
	as, err := h.l.Attempts(h.ctx, id)
	h.ok(err)
	for i, want := range []string{"2026-11-20", "2026-11-21", "2026-11-24", "2026-11-25", "2026-11-26"} {
		if as[i].Round != want || !as[i].Final {
			t.Fatalf("attempt %d: %+v", i, as[i])
		}
	}
	n, err := h.l.Cancel(h.ctx, "ann", ledger.IDs(id))
	h.ok(err)
	equal(t, "cancelled", n, 1)
	h.wantState(id, ledger.StateCancelled)
}

func recurringFailsToNext(t *testing.T, h *harness) {
	h.policy(ledger.Kind{Name: "k", MaxFailures: 2})
	id := h.add(ledger.NewItem{Kind: "k", Key: "x", Every: "36h"})[0].ID
	own := ledger.Fail(errTest)
	own.Code = "round_done" // of a handler, this code ends no round
	h.end(h.claimOne("k"), own)
	equal(t, "state of the round after a failure", h.item(id).RoundState, ledger.RoundOpen)
	h.pass(time.Minute)
	h.end(h.claimOne("k"), ledger.Fail(errTest))
	it := h.wantState(id, ledger.StateWaiting)
	if it.Failures != 2 || !it.Due.After(start.Add(time.Hour)) || it.Due.After(start.Add(36*time.Hour)) {
		t.Fatalf("%+v", it)
	}
	h.clock.advance(it.Due.Sub(h.clock.now()))
	equal(t, "failures of a round that has begun, before anybody looks", h.item(id).Failures, 0)
	n, err := h.l.Retry(h.ctx, "ann", ledger.IDs(id))
	h.ok(err)
	equal(t, "retried of the new round", n, 0)
	h.pass(0)
	ls := h.claimOne("k")
	equal(t, "failures of the attempt that begins a round", ls.Failures, 0)
	equal(t, "failures while it is worked", h.item(id).Failures, 0)
	h.end(ls, ledger.Fail(errTest))
	equal(t, "failures of a new round", h.wantState(id, ledger.StateWaiting).Failures, 1)
	h.pass(time.Minute)
	h.end(h.claimOne("k"), ledger.Permanent(errTest)) // a permanent failure ends only the period
	if it = h.wantState(id, ledger.StateWaiting); it.Due.Sub(h.clock.now()) != 36*time.Hour-time.Minute ||
		it.RoundState != ledger.RoundFailed {
		t.Fatalf("%+v", it)
	}
	h.pass(36*time.Hour - time.Minute)
	h.claimOne("k")
	h.pass(2 * time.Minute) // lost
	h.end(h.claimOne("k"), ledger.Done(nil))
	equal(t, "outcomes", h.outcomes(id), []ledger.Outcome{ledger.OutcomeFailed, ledger.OutcomeFailed,
		ledger.OutcomeFailed, ledger.OutcomeFailed, ledger.OutcomeLost, ledger.OutcomeDone})
}

// recurringRetried: Retry works an item once more in the round in which it failed for good. It does not repeat a done
// round.
func recurringRetried(t *testing.T, h *harness) {
	failed := h.add(ledger.NewItem{Kind: "k", Key: "failed", Every: "day"})[0].ID
	h.end(h.claimOne("k"), ledger.Permanent(errTest))
	done := h.add(ledger.NewItem{Kind: "k", Key: "done", Every: "day"})[0].ID
	h.end(h.claimOne("k"), ledger.Done(nil))
	for id, want := range map[int64]bool{failed: true, done: false} {
		it := h.wantState(id, ledger.StateWaiting)
		equal(t, "round failed", it.RoundState == ledger.RoundFailed, want)
	}
	retry := func() int64 {
		n, err := h.l.Retry(h.ctx, "ann", ledger.Filter{Kinds: []string{"k"}})
		h.ok(err)
		return n
	}
	equal(t, "retried", retry(), 1)
	ls := h.claimOne("k")
	equal(t, "round", ls.Round, "2026-11-20")
	h.end(ls, ledger.Done(nil))
	it := h.wantState(failed, ledger.StateWaiting)
	equal(t, "round", it.RoundState, ledger.RoundDone)
	equal(t, "retried", retry(), 0)
}

func recurringOncePerPeriod(t *testing.T, h *harness) {
	id := h.add(ledger.NewItem{Kind: "k", Key: "x", Every: "0 1 * * *"})[0].ID
	h.end(h.claimOne("k"), ledger.Done(nil))
	// An operator reopens today's round: it is completed again, in another opening.
	n, err := h.l.Cancel(h.ctx, "ann", ledger.IDs(id))
	h.ok(err)
	equal(t, "cancelled", n, 1)
	_, err = h.l.Reopen(h.ctx, "ann", ledger.IDs(id))
	h.ok(err)
	h.end(h.claimOne("k"), ledger.Done(nil))
	equal(t, "outcomes", h.outcomes(id), []ledger.Outcome{ledger.OutcomeDone, ledger.OutcomeCancelled, ledger.OutcomeDone})

	hourly := ledger.NewItem{Kind: "k", Key: "y", Every: "hour"}
	other := h.add(hourly)[0].ID
	h.end(h.claimOne("k"), ledger.Done(nil))
	h.pass(time.Hour)
	ls := h.claimOne("k")
	hourly.Every = "0 9 * * *"
	equal(t, "rescheduled", h.add(hourly)[0].Verdict, ledger.VerdictChanged)
	h.end(ls, ledger.Done(nil))
	h.ok(h.finish(ls, ledger.Done(nil)))
	equal(t, "outcomes", h.outcomes(other), []ledger.Outcome{ledger.OutcomeDone, ledger.OutcomeSnoozed})
	equal(t, "round", h.item(other).RoundState, ledger.RoundDone)
	it := h.wantState(id, ledger.StateWaiting)
	equal(t, "due", it.Due.UTC(), time.Date(2026, 11, 21, 1, 0, 0, 0, time.UTC))
}

// cancelRecurring: a recurring item that is cancelled while it runs is cancelled when its attempt ends, also if that
// completes. Filters and counts agree, Forget removes it, and adding it again does not bring it back.
func cancelRecurring(t *testing.T, h *harness) {
	results := []ledger.Result{ledger.Done(nil), ledger.Skip("same"), ledger.Fail(errTest), ledger.Permanent(errTest),
		ledger.Snooze(time.Hour, "")}
	all := ledger.Filter{Kinds: []string{"k"}}
	for i, r := range results {
		n := ledger.NewItem{Kind: "k", Key: string(rune('a' + i)), Every: "day", Fingerprint: "1"}
		id := h.add(n)[0].ID
		ls := h.claimOne("k")
		_, err := h.l.Cancel(h.ctx, "ann", ledger.IDs(id))
		h.ok(err)
		e := []ledger.Ending{{Lease: ls, Result: r}}
		h.ok(h.l.Finish(h.ctx, e...)[0])
		equal(t, "state and round in the answer", [2]string{string(e[0].State), string(e[0].Round)},
			[2]string{"cancelled", "cancelled"})
		it := h.wantState(id, ledger.StateCancelled)
		equal(t, "round", it.RoundState, ledger.RoundCancelled)
		if r.Outcome.Completed() {
			equal(t, "the attempt keeps its outcome", it.Outcome, r.Outcome)
		}
		equal(t, "listed again", h.add(n)[0].Verdict, ledger.VerdictKnown)
		h.wantState(id, ledger.StateCancelled)
	}
	for _, f := range []ledger.Filter{{States: []ledger.State{ledger.StateDone}},
		{Rounds: []ledger.RoundState{ledger.RoundDone}}} {
		got, err := h.l.Count(h.ctx, all.And(f))
		h.ok(err)
		equal(t, "done", got, 0)
	}
	for _, f := range []ledger.Filter{{States: []ledger.State{ledger.StateCancelled}},
		{Rounds: []ledger.RoundState{ledger.RoundCancelled}}} {
		got, err := h.l.Count(h.ctx, all.And(f))
		h.ok(err)
		equal(t, "cancelled", got, int64(len(results)))
	}
	gone, left, err := h.l.Forget(h.ctx, "ann", all.And(ledger.Filter{States: []ledger.State{ledger.StateCancelled}}))
	h.ok(err)
	equal(t, "forgotten and left", [2]int64{gone, left}, [2]int64{int64(len(results)), 0})
	// A version that came before the cancel does not open another round.
	id := h.add(ledger.NewItem{Kind: "k", Key: "x", Fingerprint: "1"})[0].ID
	ls := h.claimOne("k")
	h.add(ledger.NewItem{Kind: "k", Key: "x", Fingerprint: "2"})
	_, err = h.l.Cancel(h.ctx, "ann", ledger.IDs(id))
	h.ok(err)
	h.end(ls, ledger.Done(nil))
	h.wantState(id, ledger.StateDone)
}

func recurringWhileLeased(t *testing.T, h *harness) {
	id := h.addOne("x")
	ls := h.claimOne("k")
	equal(t, "verdict", h.add(ledger.NewItem{Kind: "k", Key: "x", Every: "day"})[0].Verdict, ledger.VerdictChanged)
	h.end(ls, ledger.Done(nil))
	if it := h.wantState(id, ledger.StateWaiting); it.Every != "day" {
		t.Fatalf("%+v", it)
	}
	h.pass(24 * time.Hour)
	h.end(h.claimOne("k"), ledger.Done(nil))
}

// recurringInDoubt: a decision is about the period in doubt, not about the period in which it is made.
func recurringInDoubt(t *testing.T, h *harness) {
	h.policy(ledger.Kind{Name: "k", OnLost: ledger.OnLostDoubt})
	id := h.add(ledger.NewItem{Kind: "k", Key: "x", Every: "day"})[0].ID
	ls := h.claimOne("k")
	h.start(ls)
	h.pass(2 * time.Minute)
	h.clock.advance(48 * time.Hour)
	equal(t, "round", h.wantState(id, ledger.StateDoubt).Round, "2026-11-20")
	h.ok(h.l.Decide(h.ctx, id, "ann", ledger.Done(nil)))
	as, err := h.l.Attempts(h.ctx, id)
	h.ok(err)
	equal(t, "rounds", []string{as[0].Round, as[1].Round}, []string{"2026-11-20", "2026-11-20"})
	h.pass(0)
	equal(t, "today's is not done yet", h.claimOne("k").Round, "2026-11-22")
}

func recurringCounters(t *testing.T, h *harness) {
	h.policy(ledger.Kind{Name: "k", MaxFailures: 3})
	id := h.add(ledger.NewItem{Kind: "k", Key: "x", Every: "hour"})[0].ID
	h.end(h.claimOne("k"), ledger.Fail(errTest))
	h.pass(time.Minute)
	h.end(h.claimOne("k"), ledger.RetryAfter(time.Hour, errTest))
	h.pass(time.Hour)
	h.end(h.claimOne("k"), ledger.Fail(errTest))
	if it := h.item(id); it.Failures != 1 {
		t.Fatalf("%d failures in the new round", it.Failures)
	}
	equal(t, "it goes on in this hour", h.item(id).Due.Before(h.clock.now().Add(time.Minute)), true)
}

// recurringClockBack: if the clock steps back over the start of a period, a completion still belongs to that period.
func recurringClockBack(t *testing.T, h *harness) {
	id := h.add(ledger.NewItem{Kind: "k", Key: "x", Every: "day"})[0].ID
	h.end(h.claimOne("k"), ledger.Done(nil))
	h.pass(14 * time.Hour)
	h.clock.advance(-time.Second)
	ls := h.claimOne("k")
	equal(t, "round", ls.Round, "2026-11-21")
	h.end(ls, ledger.Done(nil))
	equal(t, "outcomes", h.outcomes(id), []ledger.Outcome{ledger.OutcomeDone, ledger.OutcomeDone})
}

// recurringReopenedClockBack: a round that a person opened again counts, also if a later round was done while the clock
// was ahead. A completion of an opening counts once for each period.
func recurringReopenedClockBack(t *testing.T, h *harness) {
	id := h.add(ledger.NewItem{Kind: "k", Key: "x", Every: "day"})[0].ID
	h.clock.advance(3 * 24 * time.Hour)
	h.end(h.claimOne("k"), ledger.Done(nil))
	h.clock.advance(-3 * 24 * time.Hour)
	reopen := func() {
		t.Helper()
		n, err := h.l.Reopen(h.ctx, "ann", ledger.IDs(id))
		h.ok(err)
		equal(t, "reopened", n, 1)
	}
	reopen()
	done := ledger.Done(nil)
	done.Emit = []ledger.NewItem{{Kind: "child", Key: "c"}}
	h.end(h.claimOne("k"), done)
	_, err := h.l.Find(h.ctx, "child", fmt.Sprintf("k/%d", id), "c")
	h.ok(err)
	h.pass(24 * time.Hour)
	h.end(h.claimOne("k"), ledger.Permanent(errTest))
	h.clock.advance(-24 * time.Hour)
	_, err = h.l.Retry(h.ctx, "ann", ledger.IDs(id))
	h.ok(err)
	h.end(h.claimOne("k"), ledger.Done(nil))
	equal(t, "outcomes", h.outcomes(id), []ledger.Outcome{ledger.OutcomeDone, ledger.OutcomeDone, ledger.OutcomeFailed,
		ledger.OutcomeSnoozed})
}

// attemptsInParts: AttemptsBefore returns attempts in parts, newest first, each once, with log, output and round.
func attemptsInParts(t *testing.T, h *harness) {
	id := h.add(ledger.NewItem{Kind: "k", Key: "x", Every: "day"})[0].ID
	for day := range 5 {
		h.end(h.claimOne("k"), ledger.Result{Outcome: ledger.OutcomeDone, Output: []byte{byte(day)}, Log: "log"})
		h.pass(24 * time.Hour)
	}
	want, err := h.l.Attempts(h.ctx, id)
	h.ok(err)
	slices.Reverse(want)
	var got []ledger.Attempt
	for before := int64(0); ; before = got[len(got)-1].Attempt {
		part, err := h.l.AttemptsBefore(h.ctx, id, before, 2)
		h.ok(err)
		if got = append(got, part...); len(part) < 2 {
			break
		}
	}
	equal(t, "attempts", got, want)
	if _, err = h.l.AttemptsBefore(h.ctx, id+1, 0, 2); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("of an unknown item: %v", err)
	}
	if _, err = h.l.AttemptsBefore(h.ctx, id, 0, 0); !errors.Is(err, ledger.ErrInvalid) {
		t.Errorf("no attempt at a time: %v", err)
	}
}

// lastOutput: LastOutput is the output of the newest completed round, also after later failures and after pruning.
func lastOutput(t *testing.T, h *harness) {
	id := h.add(ledger.NewItem{Kind: "k", Key: "x", Every: "day"})[0].ID
	is := func(want string) {
		t.Helper()
		out, err := h.l.LastOutput(h.ctx, id)
		h.ok(err)
		equal(t, "last output", string(out), want)
	}
	is("")
	h.end(h.claimOne("k"), ledger.Done([]byte("one")))
	is("one")
	h.pass(24 * time.Hour)
	is("one")
	h.end(h.claimOne("k"), ledger.Result{Outcome: ledger.OutcomeFailed, Final: true, Output: []byte("broken")})
	is("one")
	h.pass(24 * time.Hour)
	h.end(h.claimOne("k"), ledger.Result{Outcome: ledger.OutcomeSkipped, Output: []byte("two")})
	is("two")
	h.policy(ledger.Kind{Name: "k", Keep: time.Hour})
	h.pass(2 * time.Hour)
	_, err := h.l.Prune(h.ctx, 100)
	h.ok(err)
	is("two")
	h.pass(24 * time.Hour)
	h.end(h.claimOne("k"), ledger.Done(nil))
	is("")
	out, err := h.l.LastOutput(h.ctx, id+1)
	h.ok(err)
	equal(t, "of an unknown item", out, nil)
}
