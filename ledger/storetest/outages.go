package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/filter"
)

var outageCases = []storeCase{
	{"OutageStays", outageStays},
	{"OutageOutcomes", outageOutcomes},
	{"OutageDecided", outageDecided},
	{"OutageFilters", outageFilters},
}

// outage checks FailingSince and RecoveredAt of an item.
func (h *harness) outage(what string, id int64, failing, recovered time.Time) {
	h.t.Helper()
	equal(h.t, what, h.item(id).Outage, ledger.Outage{FailingSince: failing, RecoveredAt: recovered})
	n, err := h.l.Count(h.ctx, ledger.IDs(id).And(ledger.Filter{FailingTo: h.clock.now().Add(time.Hour)}))
	h.ok(err)
	equal(h.t, what+": found as failing", n == 1, !failing.IsZero())
}

// outageStays: an outage begins with the first failure and ends with the attempt that completes. Retries, new rounds
// and acts of people do not end it.
func outageStays(t *testing.T, h *harness) {
	id := h.add(ledger.NewItem{Kind: "k", Key: "a", Fingerprint: "1"})[0].ID
	never := time.Time{}
	h.outage("new", id, never, never)
	h.pass(time.Minute)
	began := h.clock.now()
	h.end(h.claimOne("k"), ledger.RetryAfter(time.Minute, errTest))
	h.outage("failed", id, began, never)

	h.pass(time.Hour)
	h.end(h.claimOne("k"), ledger.Permanent(errTest))
	h.outage("failed for good", id, began, never)
	n, err := h.l.Retry(h.ctx, "ann", ledger.IDs(id))
	h.ok(err)
	equal(t, "retried", n, 1)
	h.outage("retried", id, began, never)
	h.end(h.claimOne("k"), ledger.Snooze(time.Minute, ""))
	h.outage("put off", id, began, never)
	h.add(ledger.NewItem{Kind: "k", Key: "a", Fingerprint: "2"})
	h.outage("in a new round", id, began, never)

	h.pass(time.Hour)
	back := h.clock.now()
	h.end(h.claimOne("k"), ledger.Done(nil))
	h.outage("done", id, never, back)
	h.pass(time.Hour)
	h.add(ledger.NewItem{Kind: "k", Key: "a", Fingerprint: "3"})
	h.end(h.claimOne("k"), ledger.Done([]byte("3")))
	h.outage("done again", id, never, back)
	h.pass(time.Hour)
	h.add(ledger.NewItem{Kind: "k", Key: "a", Fingerprint: "4"})
	h.end(h.claimOne("k"), ledger.RetryAfter(time.Minute, errTest))
	h.outage("failed again", id, h.clock.now(), never)
}

// outageOutcomes: every outcome that is a failure begins an outage. No other outcome does, nor a lost attempt that is
// repeated. A skip ends an outage, also in one batch with items that never failed.
func outageOutcomes(t *testing.T, h *harness) {
	h.policy(ledger.Kind{Name: "gone", MaxLost: 1})
	for _, c := range []struct {
		key    string
		result ledger.Result
		fails  bool
	}{
		{"failed", ledger.Result{Outcome: ledger.OutcomeFailed}, true},
		{"crashed", ledger.Result{Outcome: ledger.OutcomeCrashed}, true},
		{"lost", ledger.Result{Outcome: ledger.OutcomeLost}, false}, // repeated: only the worker is lost
		{"gone", ledger.Result{Outcome: ledger.OutcomeLost}, true},  // the last loss that the policy allows
		{"unknown", ledger.Doubt(errTest), true},
		{"done", ledger.Done(nil), false},
		{"skipped", ledger.Skip(""), false},
		{"snoozed", ledger.Snooze(time.Hour, ""), false},
		{"released", ledger.Result{Outcome: ledger.OutcomeReleased}, false},
	} {
		id := h.add(ledger.NewItem{Kind: c.key, Key: c.key})[0].ID
		if ls := h.claimOne(c.key); c.result.Outcome == ledger.OutcomeLost {
			h.pass(time.Hour)
			_, err := h.l.Expire(h.ctx, 10)
			h.ok(err)
		} else {
			h.end(ls, c.result)
		}
		since := time.Time{}
		if c.fails {
			since = h.clock.now()
		}
		h.outage(c.key, id, since, time.Time{})
	}
	a := h.add(ledger.NewItem{Kind: "k", Key: "a"})[0].ID
	h.end(h.claimOne("k"), ledger.RetryAfter(time.Second, errTest))
	h.pass(time.Minute)
	b := h.add(ledger.NewItem{Kind: "k", Key: "b"})[0].ID
	var ends []ledger.Ending
	for _, ls := range h.claim("k", 2) {
		ends = append(ends, ledger.Ending{Lease: ls, Result: ledger.Skip("")})
	}
	for _, err := range h.l.Finish(h.ctx, ends...) {
		h.ok(err)
	}
	h.outage("came back", a, time.Time{}, h.clock.now())
	h.outage("was never away", b, time.Time{}, time.Time{})
}

// outageDecided: a person who decides an item as done ends its outage with a recovery. A person who cancels it ends
// the outage without one.
func outageDecided(_ *testing.T, h *harness) {
	done := h.add(ledger.NewItem{Kind: "k", Key: "a"})[0].ID
	h.end(h.claimOne("k"), ledger.Permanent(errTest))
	gone := h.add(ledger.NewItem{Kind: "k", Key: "b"})[0].ID
	h.end(h.claimOne("k"), ledger.Permanent(errTest))
	h.pass(time.Hour)
	h.ok(h.l.Decide(h.ctx, done, "ann", ledger.Done(nil)))
	_, err := h.l.Cancel(h.ctx, "ann", ledger.IDs(gone))
	h.ok(err)
	h.outage("decided", done, time.Time{}, h.clock.now())
	h.outage("withdrawn", gone, time.Time{}, time.Time{})
}

// outageFilters: filters find what broke lately, what has been broken for long, and what recovered.
func outageFilters(t *testing.T, h *harness) {
	fail := func(key string) {
		h.add(ledger.NewItem{Kind: "k", Key: key, Every: "day"})
		h.end(h.claimOne("k"), ledger.Permanent(errTest))
	}
	fail("old")
	fail("mended")
	h.pass(10 * 24 * time.Hour)
	for _, ls := range h.claim("k", 2) {
		h.end(ls, map[string]ledger.Result{"old": ledger.Permanent(errTest), "mended": ledger.Done(nil)}[ls.Key])
	}
	fail("new")
	h.pass(time.Minute)
	for where, want := range map[string]string{
		"failing:1d": "new", "failing:..7d": "old", "failing:11d..7d": "old", "failing:11d state:waiting": "old new",
		"failing:9d..2d": "", "recovered:1d": "mended", "recovered:..1d": "", "recovered:1d failing:1d": "",
	} {
		f, err := filter.Parse(where, h.clock.now())
		h.ok(err)
		var got []string
		for it, err := range h.l.List(h.ctx, f, 0) {
			h.ok(err)
			got = append(got, it.Key)
		}
		equal(t, where, strings.Join(got, " "), want)
	}
}
