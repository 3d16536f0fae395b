package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// putOff: an item that a person puts off waits until then, whatever its state was, and is not open meanwhile.
// FailingSince stays. Retry revokes it, and so does a time that has come.
func putOff(t *testing.T, h *harness) {
	ids := map[string]int64{}
	for _, key := range []string{"done", "failed", "tried", "later", "ready"} {
		n := ledger.NewItem{Kind: "k", Key: key, Every: "day"}
		if key == "later" {
			n.Due = start.Add(time.Hour)
		}
		ids[key] = h.add(n)[0].ID
		switch key {
		case "done":
			h.end(h.claimOne("k"), ledger.Done(nil))
		case "failed":
			h.end(h.claimOne("k"), ledger.Permanent(errTest))
		case "tried":
			h.end(h.claimOne("k"), ledger.RetryAfter(time.Minute, errTest))
		}
	}
	all := ledger.Filter{Kinds: []string{"k"}}
	put := func(until time.Time, want int64) {
		t.Helper()
		n, err := h.l.PutOff(h.ctx, "operator:ann", all, until)
		h.ok(err)
		equal(t, "changed", n, want)
	}
	six := start.Add(20 * time.Hour) // midnight is after 14 hours
	put(six, 5)
	put(six, 0)
	off := map[ledger.RoundState][]string{ledger.RoundDone: {"done"},
		ledger.RoundPutOff: {"failed", "tried", "later", "ready"}}
	h.rounds(ids, off)
	counts, err := h.l.Counts(h.ctx, start)
	h.ok(err)
	c := counts[0]
	equal(t, "done, failed, put off, open", [4]int64{c.RoundsDone, c.RoundsFailed, c.RoundsPutOff, c.Open()},
		[4]int64{1, 0, 4, 0})
	equal(t, "until", c.PutOffUntil.UTC(), six)
	for key, id := range ids {
		it := h.wantState(id, ledger.StateWaiting)
		equal(t, key+" is failing", !it.FailingSince.IsZero(), key == "failed" || key == "tried")
		if it.Failures != 0 || !it.PutOff || !it.Due.Equal(six) {
			t.Errorf("%s: %+v", key, it)
		}
		why, err := h.l.Why(h.ctx, id)
		h.ok(err)
		equal(t, key, why.Code, "put_off")
	}
	seven := six.Add(time.Hour)
	put(seven, 5) // to another time
	h.pass(15 * time.Hour)
	equal(t, "after midnight", len(h.claim("k", 10)), 0)
	h.rounds(ids, off)
	put(h.clock.now(), 5)
	h.rounds(ids, map[ledger.RoundState][]string{ledger.RoundOpen: {"done", "failed", "tried", "later", "ready"}})
	put(seven, 5)
	n, err := h.l.Retry(h.ctx, "operator:ann", all)
	h.ok(err)
	equal(t, "retried", n, 5)
	var keys []string
	for _, ls := range h.claim("k", 10) {
		keys = append(keys, ls.Key)
		h.end(ls, ledger.Done(nil))
	}
	equal(t, "worked", len(keys), 5)
	put(h.clock.now(), 0) // the next round stays at midnight
	put(h.clock.now().Add(48*time.Hour), 5)
	n, err = h.l.Retry(h.ctx, "operator:ann", all)
	h.ok(err)
	equal(t, "taken back", n, 5)
	equal(t, "the next round", h.item(ids["done"]).Due.UTC(), start.Add(38*time.Hour))
	entries, err := h.l.Journal(h.ctx, ledger.JournalQuery{Limit: 20, Action: "put-off"})
	h.ok(err)
	equal(t, "journal", len(entries), 5)
	_, err = h.l.PutOff(h.ctx, "operator:ann", all, time.Now().Add(11*365*24*time.Hour))
	h.is(err, ledger.ErrInvalid)
}

// putOffOnce: PutOff takes ready and dead items that are worked once, but none that is leased, in doubt or ended. A
// newer version does not bring them back earlier.
func putOffOnce(t *testing.T, h *harness) {
	h.policy(ledger.Kind{Name: "k", OnLost: ledger.OnLostDoubt})
	ends := map[string]ledger.Result{"dead": ledger.Permanent(errTest), "doubt": ledger.Doubt(errTest),
		"done": ledger.Done(nil)}
	for _, key := range []string{"dead", "doubt", "done", "leased", "ready"} {
		h.add(ledger.NewItem{Kind: "k", Key: key, Fingerprint: "1"})
		if end, ended := ends[key]; ended {
			h.end(h.claimOne("k"), end)
		} else if key == "leased" {
			h.claimOne("k")
		}
	}
	until := start.Add(time.Hour)
	n, err := h.l.PutOff(h.ctx, "operator:ann", ledger.Filter{Kinds: []string{"k"}}, until)
	h.ok(err)
	equal(t, "changed", n, 2)
	var waiting []string
	for it, err := range h.l.List(h.ctx, ledger.Filter{States: []ledger.State{ledger.StateWaiting}}, 0) {
		h.ok(err)
		waiting = append(waiting, it.Key)
	}
	equal(t, "waiting", strings.Join(waiting, " "), "dead ready")
	a := h.add(ledger.NewItem{Kind: "k", Key: "dead", Fingerprint: "2"})[0]
	equal(t, "changed", a.Verdict, ledger.VerdictChanged)
	equal(t, "due", h.item(a.ID).Due.UTC(), until)
	h.pass(time.Hour)
	equal(t, "worked, with the one whose lease ran out", len(h.claim("k", 10)), 3)
}
