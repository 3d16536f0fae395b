package storetest

import (
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

func recurringDaily(t *testing.T, h *harness) {
	id := h.add(ledger.NewItem{Kind: "k", Key: "x", Every: "day", Zone: "Europe/Berlin"})[0].ID
	ls := h.take("k")
	equal(t, "round", ls.Round, "2026-11-20")
	key := ls.IdempotencyKey()
	h.end(ls, ledger.Done([]byte("x")))
	it := h.state(id, ledger.StateWaiting)
	equal(t, "midnight in Berlin", it.Due.UTC(), time.Date(2026, 11, 20, 23, 0, 0, 0, time.UTC))
	h.pass(13*time.Hour - time.Second)
	equal(t, "not yet", len(h.claim("k", 1)), 0)
	h.pass(time.Second)
	ls = h.take("k")
	if ls.Round != "2026-11-21" || ls.IdempotencyKey() == key {
		t.Fatalf("round %s, idempotency key %s", ls.Round, ls.IdempotencyKey())
	}
	h.end(ls, ledger.Done(nil))
	h.pass(72 * time.Hour) // nobody worked for days: the past is not made up for
	ls = h.take("k")
	equal(t, "round", ls.Round, "2026-11-24")
	h.end(ls, ledger.Skip("nothing new"))
	it = h.state(id, ledger.StateWaiting)
	equal(t, "due", it.Due.UTC(), time.Date(2026, 11, 24, 23, 0, 0, 0, time.UTC))
	as, err := h.l.Attempts(h.ctx, id)
	h.ok(err)
	for i, want := range []string{"2026-11-20", "2026-11-21", "2026-11-24"} {
		if as[i].Round != want || !as[i].Final {
			t.Fatalf("attempt %d: %+v", i, as[i])
		}
	}
	n, err := h.l.Cancel(h.ctx, "ann", ledger.IDs(id))
	h.ok(err)
	equal(t, "cancelled", n, 1)
	h.state(id, ledger.StateCancelled)
}

func recurringFailsToNext(t *testing.T, h *harness) {
	h.policy(ledger.Kind{Name: "k", MaxFailures: 2})
	id := h.add(ledger.NewItem{Kind: "k", Key: "x", Every: "36h"})[0].ID
	h.end(h.take("k"), ledger.Fail(errTest))
	h.pass(time.Minute)
	h.end(h.take("k"), ledger.Fail(errTest))
	it := h.state(id, ledger.StateWaiting)
	if it.Failures != 0 || !it.Due.After(start.Add(time.Hour)) || it.Due.After(start.Add(36*time.Hour)) {
		t.Fatalf("%+v", it)
	}
	h.pass(it.Due.Sub(h.clock.now()))
	h.end(h.take("k"), ledger.Permanent(errTest)) // also for good only ends the period
	if it = h.state(id, ledger.StateWaiting); it.Due.Sub(h.clock.now()) != 36*time.Hour {
		t.Fatalf("%+v", it)
	}
	h.pass(36 * time.Hour)
	h.take("k")
	h.pass(2 * time.Minute) // lost
	h.end(h.take("k"), ledger.Done(nil))
	equal(t, "outcomes", h.outcomes(id), []ledger.Outcome{ledger.OutcomeFailed, ledger.OutcomeFailed, ledger.OutcomeFailed, ledger.OutcomeLost, ledger.OutcomeDone})
}

func recurringOncePerPeriod(t *testing.T, h *harness) {
	id := h.add(ledger.NewItem{Kind: "k", Key: "x", Every: "0 1 * * *"})[0].ID
	h.end(h.take("k"), ledger.Done(nil))
	// An operator reopens today's round: it runs, but is not recorded as done twice.
	n, err := h.l.Cancel(h.ctx, "ann", ledger.IDs(id))
	h.ok(err)
	equal(t, "cancelled", n, 1)
	_, err = h.l.Reopen(h.ctx, "ann", ledger.IDs(id))
	h.ok(err)
	ls := h.take("k")
	h.end(ls, ledger.Done(nil))
	h.ok(h.finish(ls, ledger.Done(nil)))
	equal(t, "outcomes", h.outcomes(id), []ledger.Outcome{ledger.OutcomeDone, ledger.OutcomeCancelled, ledger.OutcomeSnoozed})
	it := h.state(id, ledger.StateWaiting)
	equal(t, "due", it.Due.UTC(), time.Date(2026, 11, 21, 1, 0, 0, 0, time.UTC))
}
