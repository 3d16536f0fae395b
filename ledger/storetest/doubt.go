package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

func (h *harness) mails(n int) []*ledger.Lease {
	h.t.Helper()
	h.policy(ledger.Kind{Name: "k", OnLost: ledger.OnLostDoubt})
	h.addMany(n)
	return h.claim("k", n)
}

func (h *harness) start(ls ...*ledger.Lease) {
	h.t.Helper()
	for _, err := range h.l.Start(h.ctx, time.Minute, ls...) {
		h.ok(err)
	}
}

func doubtOnlyStarted(t *testing.T, h *harness) {
	ls := h.mails(3)
	h.start(ls[1])
	h.pass(2 * time.Minute)
	h.wantState(ls[0].ID, ledger.StateReady)
	h.wantState(ls[1].ID, ledger.StateDoubt)
	h.wantState(ls[2].ID, ledger.StateReady)
	equal(t, "claimable", len(h.claim("k", 5)), 2)
	h.is(h.l.Start(h.ctx, time.Minute, ls[0])[0], ledger.ErrLeaseLost)
}

func doubtLateReport(t *testing.T, h *harness) {
	ls := h.mails(4)
	h.start(ls...)
	h.pass(2 * time.Minute)
	h.end(ls[0], ledger.Done([]byte("sent")))
	h.wantState(ls[0].ID, ledger.StateDone)
	equal(t, "outcomes", h.outcomes(ls[0].ID), []ledger.Outcome{ledger.OutcomeLost, ledger.OutcomeDone})
	h.ok(h.finish(ls[0], ledger.Done([]byte("sent"))))
	equal(t, "asked twice", len(h.outcomes(ls[0].ID)), 2)
	as, err := h.l.Attempts(h.ctx, ls[0].ID)
	h.ok(err)
	if late := as[1]; !late.LeasedAt.IsZero() || late.Agent != "a" || late.LockID != ls[0].LockID.String() || !late.Final {
		t.Fatalf("%+v", late)
	}
	h.end(ls[1], ledger.Fail(errTest)) // an error is a report: it took no effect
	h.wantState(ls[1].ID, ledger.StateWaiting)
	h.end(ls[2], ledger.Doubt(errTest)) // the holder does not know either
	h.wantState(ls[2].ID, ledger.StateDoubt)
	h.ok(h.l.Decide(h.ctx, ls[3].ID, "ann", ledger.Done(nil)))
	h.is(h.finish(ls[3], ledger.Fail(errTest)), ledger.ErrLeaseLost) // a person decided
	h.wantState(ls[3].ID, ledger.StateDone)
}

func doubtDecided(t *testing.T, h *harness) {
	ls := h.mails(4)
	h.start(ls...)
	h.pass(2 * time.Minute)
	act := ledger.OneAct(h.ctx, "")
	h.ok(h.l.Decide(act, ls[0].ID, "ann", ledger.Done([]byte("seen it"))))
	h.ok(h.l.Decide(h.ctx, ls[1].ID, "ann", ledger.Result{Outcome: ledger.OutcomeCancelled}))
	n, err := h.l.Retry(act, "ann", ledger.IDs(ls[2].ID))
	h.ok(err)
	equal(t, "retried", n, 1)
	entries, err := h.l.Journal(h.ctx, ledger.JournalQuery{Actor: "ann", Limit: 10})
	h.ok(err)
	if len(entries) != 3 || entries[0].Detail != "" || entries[1].Detail != "cancelled" || entries[2].Detail != "done" {
		t.Errorf("journal %+v", entries)
	}
	n, err = h.l.Cancel(h.ctx, "ann", ledger.IDs(ls[3].ID))
	h.ok(err)
	equal(t, "cancelled", n, 1)
	for i, want := range []ledger.State{ledger.StateDone, ledger.StateCancelled, ledger.StateReady,
		ledger.StateCancelled} {
		h.wantState(ls[i].ID, want)
	}
	as, err := h.l.Attempts(h.ctx, ls[0].ID)
	h.ok(err)
	if d := as[1]; d.Agent != "ann" || d.Attempt != 2 || d.LockID != "" || !d.Final || string(d.Output) != "seen it" {
		t.Fatalf("%+v", d)
	}
	for _, l := range ls {
		h.is(h.finish(l, ledger.Done(nil)), ledger.ErrLeaseLost)
	}
	h.is(h.l.Decide(h.ctx, ls[0].ID, "ann", ledger.Done(nil)), ledger.ErrInvalid) // is done
	h.is(h.l.Decide(h.ctx, 1<<40, "ann", ledger.Done(nil)), ledger.ErrNotFound)
	h.is(h.l.Decide(h.ctx, ls[2].ID, "ann", ledger.Fail(errTest)), ledger.ErrInvalid)
}

func doubtReopen(t *testing.T, h *harness) {
	h.policy(ledger.Kind{Name: "k", OnLost: ledger.OnLostDoubt})
	id := h.add(ledger.NewItem{Kind: "k", Key: "x", Fingerprint: "1"})[0].ID
	ls := h.claimOne("k")
	h.start(ls)
	h.add(ledger.NewItem{Kind: "k", Key: "x", Fingerprint: "2"})
	h.pass(2 * time.Minute)
	if it := h.wantState(id, ledger.StateDoubt); it.Round != "1" {
		t.Fatalf("%+v", it)
	}
	h.ok(h.l.Decide(h.ctx, id, "ann", ledger.Done(nil)))
	if it := h.wantState(id, ledger.StateReady); it.Round != "2" {
		t.Fatalf("%+v", it)
	}
}

func noReportIsDoubt(t *testing.T, h *harness) {
	ls := h.mails(5)
	h.start(ls[:4]...)
	panicked := ledger.Fail(errTest)
	panicked.NoReport = true
	h.end(ls[0], panicked)
	h.wantState(ls[0].ID, ledger.StateDoubt)
	equal(t, "outcomes", h.outcomes(ls[0].ID), []ledger.Outcome{ledger.OutcomeUnknown})
	h.end(ls[1], ledger.Crashed("killed"))
	h.wantState(ls[1].ID, ledger.StateDoubt)
	h.end(ls[2], ledger.Fail(errTest))
	h.wantState(ls[2].ID, ledger.StateWaiting)
	h.end(ls[3], ledger.Release())
	h.wantState(ls[3].ID, ledger.StateReady)
	h.end(ls[4], ledger.Crashed("killed")) // it was not started
	h.wantState(ls[4].ID, ledger.StateWaiting)
	// Items of a kind with on_lost = repeat are tried again.
	h.add(ledger.NewItem{Kind: "other", Key: "x"})
	o := h.claimOne("other")
	h.end(o, panicked)
	h.wantState(o.ID, ledger.StateWaiting)
}

func cancelQueued(t *testing.T, h *harness) {
	id := h.addOne("x")
	waits := h.add(ledger.NewItem{Kind: "k", Key: "y", Due: start.Add(time.Hour)})[0].ID
	n, err := h.l.Cancel(h.ctx, "ann", ledger.IDs(id, waits))
	h.ok(err)
	equal(t, "cancelled", n, 2)
	h.wantState(id, ledger.StateCancelled)
	h.wantState(waits, ledger.StateCancelled)
	equal(t, "outcomes", h.outcomes(id), []ledger.Outcome{ledger.OutcomeCancelled})
	n, err = h.l.Cancel(h.ctx, "ann", ledger.IDs(id))
	h.ok(err)
	equal(t, "again", n, 0)
	equal(t, "claimable", len(h.claim("k", 5)), 0)
}

func cancelRunning(t *testing.T, h *harness) {
	h.addMany(4)
	ls := h.claim("k", 4)
	n, err := h.l.Cancel(h.ctx, "ann", ledger.Filter{Kinds: []string{"k"}})
	h.ok(err)
	equal(t, "asked", n, 4)
	h.is(h.l.Start(h.ctx, time.Minute, ls[0])[0], ledger.ErrLeaseLost)
	for _, err := range append(h.extend(ls...), h.l.Held(h.ctx, ls...)...) {
		h.is(err, ledger.ErrCancelled)
	}
	h.end(ls[0], ledger.Done(nil)) // the attempt completed before it noticed
	h.wantState(ls[0].ID, ledger.StateDone)
	e := []ledger.Ending{{Lease: ls[1], Result: ledger.Fail(errTest)}}
	for range 2 {
		h.ok(h.l.Finish(h.ctx, e...)[0])
		equal(t, "recorded", e[0].Recorded, ledger.OutcomeCancelled)
	}
	h.wantState(ls[1].ID, ledger.StateCancelled)
	h.end(ls[2], ledger.Release())
	h.wantState(ls[2].ID, ledger.StateCancelled)
	h.pass(2 * time.Minute) // its lease expires
	h.wantState(ls[3].ID, ledger.StateCancelled)
}

// cancelVersions: Cancel is about the versions known so far. A later version is worked, also if the cancelled attempt
// still runs. A version that came before the cancel is cancelled, too.
func cancelVersions(t *testing.T, h *harness) {
	cancel := func(id int64) {
		n, err := h.l.Cancel(h.ctx, "ann", ledger.IDs(id))
		h.ok(err)
		equal(t, "cancelled", n, 1)
	}
	for i, every := range []string{"", "day"} {
		for j, r := range []ledger.Result{{Outcome: ledger.OutcomeCancelled}, ledger.Done(nil), ledger.Fail(errTest)} {
			n := ledger.NewItem{Kind: "k", Key: string(rune('a' + 3*i + j)), Every: every, Fingerprint: "1"}
			id := h.add(n)[0].ID
			ls := h.claimOne("k")
			cancel(id)
			n.Fingerprint = "2"
			equal(t, "newer than the cancel", h.add(n)[0].Verdict, ledger.VerdictChanged)
			h.end(ls, r)
			h.wantState(id, ledger.StateReady)
			ls = h.claimOne("k")
			n.Fingerprint = "3"
			equal(t, "newer", h.add(n)[0].Verdict, ledger.VerdictChanged)
			cancel(id)
			h.verify()
			h.end(ls, r)
			want := ledger.StateCancelled
			if r.Outcome.Completed() && every == "" {
				want = ledger.StateDone
			}
			h.wantState(id, want)
			equal(t, "listed again", h.add(n)[0].Verdict, ledger.VerdictKnown)
			n.Fingerprint = "4"
			equal(t, "newer than the end", h.add(n)[0].Verdict, ledger.VerdictChanged)
			h.end(h.claimOne("k"), ledger.Done(nil))
			h.verify()
			h.remove(id)
		}
	}
}

// cancelInDoubt: a cancel is kept until the item has ended, however the attempt ends.
func cancelInDoubt(t *testing.T, h *harness) {
	ls := h.mails(4)
	h.start(ls[1], ls[2], ls[3])
	n, err := h.l.Cancel(h.ctx, "ann", ledger.Filter{Kinds: []string{"k"}})
	h.ok(err)
	equal(t, "asked", n, 4)
	h.pass(2 * time.Minute)
	h.wantState(ls[0].ID, ledger.StateCancelled) // it was not started
	for _, l := range ls[1:] {
		h.wantState(l.ID, ledger.StateDoubt)
	}
	h.end(ls[1], ledger.Fail(errTest)) // it took no effect, so the cancel holds
	h.wantState(ls[1].ID, ledger.StateCancelled)
	h.end(ls[2], ledger.Done(nil))
	h.wantState(ls[2].ID, ledger.StateDone)
	n, err = h.l.Retry(h.ctx, "ann", ledger.IDs(ls[3].ID)) // a retry revokes the cancel
	h.ok(err)
	equal(t, "retried", n, 1)
	h.end(h.claimOne("k"), ledger.Release())
	h.wantState(ls[3].ID, ledger.StateReady)
	// A crash is no report.
	h.end(h.claimOne("k"), ledger.Result{Outcome: ledger.OutcomeCrashed})
	h.wantState(ls[3].ID, ledger.StateWaiting)
	h.pass(time.Hour)
	again := h.claimOne("k")
	h.start(again)
	h.end(again, ledger.Result{Outcome: ledger.OutcomeCrashed})
	h.wantState(ls[3].ID, ledger.StateDoubt)
}

// decideMany: DecideAll decides all matching items that are dead or in doubt, as one act. They keep the code of their
// failure.
func decideMany(t *testing.T, h *harness) {
	h.addOne("a")
	h.addOne("b")
	for _, ls := range h.claim("k", 2) {
		h.end(ls, ledger.Result{Outcome: ledger.OutcomeFailed, Code: "bad_rows", Error: "line 3", Final: true})
	}
	dead := ledger.Filter{Kinds: []string{"k"}, Codes: []string{"bad_rows"}}
	ctx := ledger.OneAct(h.ctx, "because")
	n, err := h.l.DecideAll(ctx, "ann", dead, ledger.Result{Outcome: ledger.OutcomeFailed})
	h.ok(err)
	equal(t, "dead decided as failed", n, 0)
	n, err = h.l.DecideAll(ctx, "ann", dead, ledger.Result{Outcome: ledger.OutcomeSkipped, Error: "told the owner"})
	h.ok(err)
	equal(t, "decided", n, 2)
	found, err := h.l.Count(h.ctx, dead)
	h.ok(err)
	equal(t, "found by the code", found, 2)
	for it, err := range h.l.List(h.ctx, dead, 0) {
		h.ok(err)
		equal(t, "outcome", it.Outcome, ledger.OutcomeSkipped)
		equal(t, "error", it.Error, "told the owner")
		why, err := h.l.Why(h.ctx, it.ID)
		h.ok(err)
		if !strings.Contains(why.Text, "skipped by ann at ") || !strings.HasSuffix(why.Text, ": told the owner") {
			t.Errorf("why: %s", why.Text)
		}
	}
	entries, err := h.l.Journal(h.ctx, ledger.JournalQuery{Action: "decide", Limit: 10})
	h.ok(err)
	if len(entries) != 1 || entries[0].Detail != "because" || entries[0].Changed != 2 {
		t.Errorf("journal %+v", entries)
	}
	mails := h.mails(2)
	for _, ls := range mails {
		h.start(ls)
		h.end(ls, ledger.Result{Outcome: ledger.OutcomeUnknown, Code: "timeout"})
	}
	h.ok(h.l.Decide(h.ctx, mails[0].ID, "ann", ledger.Result{Outcome: ledger.OutcomeFailed}))
	equal(t, "code", h.wantState(mails[0].ID, ledger.StateDead).Code, "timeout")
	h.ok(h.l.Decide(h.ctx, mails[1].ID, "ann", ledger.Done(nil)))
	equal(t, "code of what is done", h.wantState(mails[1].ID, ledger.StateDone).Code, "")
	_, err = h.l.Cancel(h.ctx, "bob", ledger.IDs(mails[0].ID), ledger.WithReason("sent twice"))
	h.ok(err)
	it := h.wantState(mails[0].ID, ledger.StateCancelled)
	equal(t, "code", it.Code, "timeout")
	equal(t, "error", it.Error, "sent twice")
}
