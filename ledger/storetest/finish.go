package storetest

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/cause"
)

var errTest = errors.New("it did not work")

func finishOutcomes(t *testing.T, h *harness) {
	for _, c := range []struct {
		result  ledger.Result
		outcome ledger.Outcome
		state   ledger.State
		due     time.Duration
		counts  [3]int // failures, crashes, losses
	}{
		{ledger.Done([]byte("out")), ledger.OutcomeDone, ledger.StateDone, 0, [3]int{}},
		{ledger.Skip("nothing to do"), ledger.OutcomeSkipped, ledger.StateDone, 0, [3]int{}},
		{ledger.Fail(errTest), ledger.OutcomeFailed, ledger.StateWaiting, 2 * time.Second, [3]int{1, 0, 0}},
		{ledger.RetryAfter(time.Hour, errTest), ledger.OutcomeFailed, ledger.StateWaiting, time.Hour, [3]int{1, 0, 0}},
		{ledger.Permanent(errTest), ledger.OutcomeFailed, ledger.StateDead, 0, [3]int{1, 0, 0}},
		{ledger.Snooze(time.Minute, "full"), ledger.OutcomeSnoozed, ledger.StateWaiting, time.Minute, [3]int{}},
		{ledger.Release(), ledger.OutcomeReleased, ledger.StateReady, 0, [3]int{}},
		{ledger.Doubt(errTest), ledger.OutcomeUnknown, ledger.StateDoubt, 0, [3]int{}},
		{ledger.Crashed("signal: killed"), ledger.OutcomeCrashed, ledger.StateWaiting, 2 * time.Second, [3]int{0, 1, 0}},
		{ledger.Result{Outcome: ledger.OutcomeCancelled}, ledger.OutcomeCancelled, ledger.StateCancelled, 0, [3]int{}},
	} {
		kind := "k-" + string(c.outcome) + fmt.Sprint(c.due.Seconds(), c.state)
		kind = strings.ReplaceAll(kind, " ", "-")
		id := h.add(ledger.NewItem{Kind: kind, Key: "x"})[0].ID
		c.result.Code, c.result.Log, c.result.Worker = "some_code", "a $1 'l\u2028ine\r\n", "w@1+abc"
		e := []ledger.Ending{{Lease: h.claimOne(kind), Result: c.result}}
		for _, again := range []string{"at first", "asked again"} {
			h.ok(h.l.Finish(h.ctx, e...)[0])
			if e[0].Recorded != c.outcome || e[0].State != c.state {
				t.Fatalf("%s %s: recorded %s, item %s", c.outcome, again, e[0].Recorded, e[0].State)
			}
			e[0].Recorded, e[0].State = "", ""
		}
		it := h.wantState(id, c.state)
		equal(t, string(c.outcome)+" counters", [3]int{it.Failures, it.Crashes, it.Losses}, c.counts)
		if c.state == ledger.StateWaiting {
			equal(t, string(c.outcome)+" due", it.Due.UTC(), start.Add(c.due))
		}
		as, err := h.l.Attempts(h.ctx, id)
		h.ok(err)
		lock := as[0].LockID
		if _, err := uuid.Parse(lock); err != nil {
			t.Fatalf("lock id %q", lock)
		}
		equal(t, string(c.outcome)+" attempt", as, []ledger.Attempt{{ItemID: id, Attempt: 1, Kind: kind, Agent: "a",
			LockID: lock, Worker: "w@1+abc", Epoch: 1, Round: "1", DueAt: start, LeasedAt: start, FinishedAt: start,
			Outcome: c.outcome, Final: c.state == ledger.StateDone || c.state == ledger.StateCancelled,
			Code: "some_code", Error: c.result.Error, Cause: causeOf(c.outcome, c.result),
			Log: "a $1 'l\u2028ine\r\n", Output: c.result.Output}})
		equal(t, "as seen on the item", []string{string(it.Outcome), it.Code, it.Error},
			[]string{string(c.outcome), "some_code", c.result.Error})
	}
}

// causeOf is the cause of an attempt at the item x.
func causeOf(o ledger.Outcome, r ledger.Result) string {
	if !o.FailedOrUncertain() {
		return ""
	}
	return cause.Of(r.Code, cmp.Or(r.Error, string(o)), "x")
}

func finishIsFenced(t *testing.T, h *harness) {
	for i, r := range []ledger.Result{ledger.Done(nil), ledger.Done([]byte("x")), ledger.Fail(errTest), ledger.Release(),
		ledger.Snooze(time.Hour, ""), ledger.Doubt(errTest), ledger.Crashed(""), {Outcome: ledger.OutcomeCancelled}} {
		id := h.addOne(fmt.Sprint(i))
		stale := h.claimOne("k")
		invented := *stale
		invented.LockID = uuid.New()
		h.is(h.finish(&invented, r), ledger.ErrLeaseLost) // also a first attempt, since it has a shorter way to end
		h.wantState(id, ledger.StateLeased)
		h.pass(2 * time.Minute)
		live := h.claimOne("k")
		h.is(h.finish(stale, r), ledger.ErrLeaseLost)
		if it := h.wantState(id, ledger.StateLeased); it.Attempt != live.Attempt {
			t.Fatalf("%+v", it)
		}
		equal(t, "outcomes", h.outcomes(id), []ledger.Outcome{ledger.OutcomeLost})
		h.end(live, ledger.Done(nil))
		h.is(h.finish(stale, r), ledger.ErrLeaseLost)
		invented = *live
		invented.LockID = uuid.New()
		h.is(h.finish(&invented, ledger.Fail(errTest)), ledger.ErrLeaseLost)
		h.wantState(id, ledger.StateDone)
	}
	gone := &ledger.Lease{Item: ledger.Item{ID: 1 << 40, Attempt: 1}, LockID: uuid.New()}
	h.is(h.finish(gone, ledger.Done(nil)), ledger.ErrLeaseLost)
}

func finishTwice(t *testing.T, h *harness) {
	for i, r := range []ledger.Result{ledger.Done(nil), ledger.Skip("x"), ledger.Fail(errTest),
		ledger.Snooze(time.Hour, ""), ledger.Release(), ledger.Permanent(errTest), ledger.Doubt(errTest)} {
		id := h.addOne(fmt.Sprint(i))
		ls := h.claimOne("k")
		h.end(ls, r)
		before := h.item(id)
		h.ok(h.finish(ls, r))
		equal(t, "after the second time", h.item(id), before)
		equal(t, "attempts", len(h.outcomes(id)), 1)
		other := ledger.Fail(errTest)
		if r.Outcome == ledger.OutcomeFailed {
			other = ledger.Done(nil)
		}
		if r.Outcome != ledger.OutcomeUnknown { // an unknown outcome accepts a late report
			h.is(h.finish(ls, other), ledger.ErrLeaseLost)
		}
		h.remove(id)
	}
}

func finishBatchIsHonest(t *testing.T, h *harness) {
	a := h.addMany(7)
	stale := h.claim("k", 1)
	h.pass(2 * time.Minute)
	ls := h.claim("k", 7)
	byID := map[int64]*ledger.Lease{}
	for _, l := range ls {
		byID[l.ID] = l
	}
	pick := func(i int) *ledger.Lease { return byID[a[i].ID] }
	errs := h.l.Finish(h.ctx,
		ledger.Ending{Lease: pick(1), Result: ledger.Done(nil)},
		ledger.Ending{Lease: stale[0], Result: ledger.Done(nil)},
		ledger.Ending{Lease: pick(2), Result: ledger.Fail(errTest)},
		ledger.Ending{Lease: pick(3), Result: ledger.Done(make([]byte, bounds.MaxOutput+1))},
		ledger.Ending{Lease: pick(4), Result: ledger.Permanent(errTest)},
		ledger.Ending{Lease: pick(5), Result: ledger.Done([]byte("with output"))},
		ledger.Ending{Lease: pick(6), Result: ledger.Result{Outcome: "lost"}},
	)
	for i, want := range []error{nil, ledger.ErrLeaseLost, nil, ledger.ErrInvalid, nil, nil, ledger.ErrInvalid} {
		h.is(errs[i], want)
	}
	for i, want := range []ledger.State{ledger.StateLeased, ledger.StateDone, ledger.StateWaiting, ledger.StateLeased,
		ledger.StateDead, ledger.StateDone, ledger.StateLeased} {
		h.wantState(a[i].ID, want)
	}
	as, err := h.l.Attempts(h.ctx, a[5].ID)
	h.ok(err)
	equal(t, "output", string(as[0].Output), "with output")
}

func finishLateButUnclaimed(t *testing.T, h *harness) {
	id := h.addOne("x")
	ls := h.claimOne("k")
	h.clock.advance(time.Hour) // no worker expired the lease
	h.end(ls, ledger.Done(nil))
	h.wantState(id, ledger.StateDone)
}

func finishLimits(t *testing.T, h *harness) {
	id := h.addOne("x")
	ls := h.claimOne("k")
	for _, bad := range []ledger.Result{
		{Outcome: ledger.OutcomeFailed, Code: "No"}, {Outcome: ledger.OutcomeFailed, Code: strings.Repeat("x", 65)},
		{Outcome: "nonsense"}, {}, {Outcome: ledger.OutcomeDone, Worker: "\x00"},
		ledger.Snooze(-time.Second, ""), ledger.Snooze(bounds.MaxDelay+1, ""),
		{Outcome: ledger.OutcomeFailed, Emit: []ledger.NewItem{{Kind: "k", Key: "y"}}},
		ledger.Done(nil, ledger.NewItem{Kind: "k"}), ledger.Done(nil, make([]ledger.NewItem, bounds.MaxEmit+1)...)} {
		h.is(h.finish(ls, bad), ledger.ErrInvalid)
	}
	h.is(h.l.Finish(h.ctx, ledger.Ending{Result: ledger.Done(nil)})[0], ledger.ErrInvalid) // without a lease
	h.end(ls, ledger.Result{Outcome: ledger.OutcomeFailed, Output: make([]byte, bounds.MaxOutput),
		Code: strings.Repeat("x", 64), Worker: strings.Repeat("w", bounds.MaxWorker),
		Error: "a\x00\xff" + strings.Repeat("é", bounds.MaxError), Log: strings.Repeat("é", bounds.MaxLog) + "b\x00\xff"})
	as, err := h.l.Attempts(h.ctx, id)
	h.ok(err)
	a := as[0]
	if len(a.Error) > bounds.MaxError || len(a.Error) < bounds.MaxError-1 ||
		!strings.HasPrefix(a.Error, "a\uFFFD\uFFFDé") ||
		len(a.Log) > bounds.MaxLog || len(a.Log) < bounds.MaxLog-1 || !strings.HasSuffix(a.Log, "éb\uFFFD\uFFFD") ||
		len(a.Output) != bounds.MaxOutput {
		t.Fatalf("error of %d bytes %q…, log of %d bytes …%q", len(a.Error), a.Error[:8], len(a.Log), a.Log[len(a.Log)-10:])
	}
	errs := h.l.Finish(h.ctx, make([]ledger.Ending, bounds.MaxBatch+1)...)
	h.is(errs[0], ledger.ErrInvalid)
}

func finishEmits(t *testing.T, h *harness) {
	id := h.add(ledger.NewItem{Kind: "feed", Key: "x"})[0].ID
	ls := h.claimOne("feed")
	h.end(ls, ledger.Done([]byte("o"), ledger.NewItem{Kind: "article", Key: "1", Payload: []byte("{}")},
		ledger.NewItem{Kind: "article", Key: "2", Scope: "all"}, ledger.NewItem{Kind: "article", Key: "1"}))
	scope := fmt.Sprintf("feed/%d", id)
	first, err := h.l.Find(h.ctx, "article", scope, "1")
	h.ok(err)
	equal(t, "source", first.Source, scope)
	_, err = h.l.Find(h.ctx, "article", "all", "2")
	h.ok(err)
	equal(t, "children", len(h.claim("article", 10)), 2)
	// A repeated end and a refused end add no items.
	h.ok(h.finish(ls, ledger.Done([]byte("o"), ledger.NewItem{Kind: "article", Key: "3"})))
	h.add(ledger.NewItem{Kind: "feed", Key: "y"})
	stale := h.claimOne("feed")
	h.pass(2 * time.Minute)
	h.claimOne("feed")
	h.is(h.finish(stale, ledger.Done(nil, ledger.NewItem{Kind: "article", Key: "4"})), ledger.ErrLeaseLost)
	n, err := h.l.Count(h.ctx, ledger.Filter{Kinds: []string{"article"}})
	h.ok(err)
	equal(t, "articles", n, 2)
}

func failuresBackOffAndDie(t *testing.T, h *harness) {
	h.policy(ledger.Kind{Name: "k", MaxFailures: 4, Backoff: ledger.Backoff{Base: time.Minute, Cap: 3 * time.Minute}})
	id := h.addOne("x")
	for i, want := range []time.Duration{2 * time.Minute, 3 * time.Minute, 3 * time.Minute} {
		now := h.clock.now()
		h.end(h.claimOne("k"), ledger.Fail(errTest))
		it := h.wantState(id, ledger.StateWaiting)
		equal(t, fmt.Sprint("due after failure ", i+1), it.Due.UTC(), now.Add(want))
		h.pass(want)
		h.wantState(id, ledger.StateReady)
		h.end(h.claimOne("k"), ledger.Snooze(time.Second, "not a failure"))
		h.pass(time.Second)
	}
	h.end(h.claimOne("k"), ledger.Fail(errTest))
	if it := h.wantState(id, ledger.StateDead); it.Failures != 4 || it.Attempt != 7 {
		t.Fatalf("%+v", it)
	}
	equal(t, "nothing to claim", len(h.claim("k", 1)), 0)
}

func crashesDie(t *testing.T, h *harness) {
	id, most := h.addOne("x"), ledger.Kind{}.WithDefaults().MaxCrashes
	for i := 1; i <= most; i++ {
		h.pass(time.Hour)
		ls := h.claimOne("k")
		if ls.Alone != (i > 2) {
			t.Fatalf("crash %d: alone is %v", i, ls.Alone)
		}
		h.end(ls, ledger.Crashed("SIGSEGV"))
	}
	if it := h.wantState(id, ledger.StateDead); it.Crashes != most || it.Failures != 0 || it.Error != "SIGSEGV" {
		t.Fatalf("%+v", it)
	}
}

func lossesDie(t *testing.T, h *harness) {
	h.policy(ledger.Kind{Name: "k", MaxLost: 2})
	id := h.addOne("x")
	h.claimOne("k")
	h.pass(2 * time.Minute)
	h.end(h.claimOne("k"), ledger.Fail(errTest)) // a report resets the losses
	h.pass(time.Hour)
	h.claimOne("k")
	h.pass(2 * time.Minute)
	h.wantState(id, ledger.StateReady)
	h.claimOne("k")
	h.pass(2 * time.Minute)
	if it := h.wantState(id, ledger.StateDead); it.Losses != 2 {
		t.Fatalf("%+v", it)
	}
}

func changeWhileLeased(t *testing.T, h *harness) {
	for i, r := range []ledger.Result{ledger.Done(nil), ledger.Done([]byte("x")), ledger.Skip(""), ledger.Fail(errTest),
		ledger.Permanent(errTest), ledger.Release(), ledger.Snooze(time.Hour, "")} {
		key := fmt.Sprint(i)
		id := h.add(ledger.NewItem{Kind: "k", Key: key, Fingerprint: "1", Payload: []byte("old")})[0].ID
		ls := h.claimOne("k")
		h.add(ledger.NewItem{Kind: "k", Key: key, Fingerprint: "2", Payload: []byte("new")})
		h.end(ls, r)
		it := h.wantState(id, ledger.StateReady)
		if it.Round != "2" || it.Failures != 0 {
			t.Fatalf("after %s: %+v", r.Outcome, it)
		}
		next := h.claimOne("k")
		if string(next.Payload) != "new" || next.Attempt != 2 {
			t.Fatalf("after %s: %+v", r.Outcome, next.Item)
		}
		h.end(next, ledger.Done(nil))
		if it := h.wantState(id, ledger.StateDone); it.Round != "2" {
			t.Fatalf("%+v", it)
		}
	}
	// The same holds when the lease expires.
	id := h.add(ledger.NewItem{Kind: "k", Key: "lost", Fingerprint: "1"})[0].ID
	h.claimOne("k")
	h.add(ledger.NewItem{Kind: "k", Key: "lost", Fingerprint: "2"})
	h.pass(2 * time.Minute)
	if it := h.wantState(id, ledger.StateReady); it.Round != "2" || it.Losses != 0 {
		t.Fatalf("%+v", it)
	}
}

// twoLeasesOfOneItem: one call with a stale and the live lease of an item answers for each of them.
func twoLeasesOfOneItem(t *testing.T, h *harness) {
	for _, r := range []ledger.Result{ledger.Done(nil), ledger.Fail(errTest)} {
		h.addOne("x" + string(r.Outcome))
		stale := h.claimOne("k")
		h.pass(2 * time.Minute)
		live := h.claimOne("k")
		errs := h.l.Start(h.ctx, time.Minute, stale, live)
		h.is(errs[0], ledger.ErrLeaseLost)
		h.ok(errs[1])
		for _, leases := range [][]*ledger.Lease{{stale, live}, {live, stale}} {
			h.pass(time.Second)
			for i, err := range h.extend(leases...) {
				if leases[i] == live {
					h.ok(err)
				} else {
					h.is(err, ledger.ErrLeaseLost)
				}
			}
			equal(t, "expiry", h.item(live.ID).ExpiresAt, h.clock.now().Add(time.Minute))
		}
		errs = h.l.Finish(h.ctx, ledger.Ending{Lease: stale, Result: r}, ledger.Ending{Lease: live, Result: r},
			ledger.Ending{Lease: live, Result: ledger.Skip("")})
		h.is(errs[0], ledger.ErrLeaseLost)
		h.ok(errs[1])
		h.is(errs[2], ledger.ErrInvalid) // ended twice in one call
		equal(t, "outcomes", h.outcomes(live.ID), []ledger.Outcome{ledger.OutcomeLost, r.Outcome})
	}
}

// snoozeAtMost: snoozes in a row with a code are no failures up to a number; from then on each is. A snooze without a
// code, a put-off by a person and a release are passed over.
func snoozeAtMost(t *testing.T, h *harness) {
	h.addOne("a")
	busy := ledger.Snooze(0, "busy")
	busy.Code, busy.AtMost = "http_503", 2
	other := busy
	other.Code = "http_429"
	for i, step := range []struct {
		res      ledger.Result
		want     ledger.Outcome
		failures int
	}{
		{busy, ledger.OutcomeSnoozed, 0}, {ledger.Release(), ledger.OutcomeReleased, 0},
		{ledger.Snooze(0, "its turn"), ledger.OutcomeSnoozed, 0}, {other, ledger.OutcomeSnoozed, 0},
		{busy, ledger.OutcomeFailed, 1}, {busy, ledger.OutcomeFailed, 1}, // a put-off sets failures to 0
	} {
		_, err := h.l.PutOff(h.ctx, "operator:ann", ledger.Filter{}, h.clock.now().Add(time.Minute))
		h.ok(err)
		h.pass(time.Minute)
		ls := h.claimOne("k")
		e := []ledger.Ending{{Lease: ls, Result: step.res}}
		h.ok(h.l.Finish(h.ctx, e...)[0])
		h.ok(h.l.Finish(h.ctx, e...)[0]) // the answer was lost
		it := h.item(ls.ID)
		if step.want == ledger.OutcomeSnoozed && step.res.AtMost > 0 && it.Due.Before(h.clock.now().Add(time.Second)) {
			t.Errorf("step %d: it comes back at %s", i, it.Due)
		}
		if it.Outcome != step.want || it.Failures != step.failures {
			t.Errorf("step %d: %s with %d failures, want %s with %d", i, it.Outcome, it.Failures, step.want, step.failures)
		}
		h.pass(time.Hour)
	}
	busy.AtMost = bounds.MaxSnoozes + 1
	h.is(h.finish(h.claimOne("k"), busy), ledger.ErrInvalid)
}
