package lending_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/lending"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/memory"
)

func TestLentAndEnded(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		ids := r.add("k", "a", "b", "c")
		got := r.claim("w", 3)
		if ls := got[0]; ls.ID != ids[0] || ls.Kind != "k" || ls.Key != "a" || string(ls.Payload) != `{"of":"a"}` ||
			ls.Attempt != 1 || ls.Round != "1" || !time.Time(ls.Expires).Equal(r.clock.Now().Add(time.Minute)) || ls.Resumed {
			t.Errorf("the lease: %+v", ls)
		}
		r.clock.Advance(30 * time.Second)
		renewed, err := r.Renew(t.Context(), anyone, lending.Renewal{Tokens: tokens(got), Lease: 90})
		r.ok(err)
		for _, a := range renewed.Answers {
			if !a.Recorded || !time.Time(a.Expires).Equal(r.clock.Now().Add(90*time.Second)) || a.Cancel {
				t.Errorf("the renewal: %+v", a)
			}
		}
		ended, err := r.Finish(t.Context(), anyone, []lending.Ending{{Token: got[0].Token, Output: []byte(`{"n":1}`)},
			{Token: got[1].Token, Outcome: ledger.OutcomeFailed, Code: "too_short", Error: "only one", Delay: 3600},
			{Token: got[2].Token, Outcome: "lost"}})
		r.ok(err)
		for i, want := range []lending.LeaseAnswer{
			{Recorded: true, Outcome: ledger.OutcomeDone, State: ledger.StateDone, RoundState: ledger.RoundDone},
			{Recorded: true, Outcome: ledger.OutcomeFailed, State: ledger.StateWaiting, RoundState: ledger.RoundOpen},
			{Reason: "invalid"}} {
			a := ended.Answers[i]
			want.Token, want.Message = got[i].Token, a.Message
			if fmt.Sprint(a) != fmt.Sprint(want) && a.Err() == nil || a.Recorded != want.Recorded || a.Reason != want.Reason {
				t.Errorf("the end: %+v, want %+v", a, want)
			}
		}
		if it := r.item(ids[1]); it.Code != "too_short" || it.Error != "only one" || it.Failures != 1 ||
			!it.Due.Equal(r.clock.Now().Add(time.Hour)) {
			t.Errorf("the failure: %+v", it)
		}
		out, err := r.l.LastOutput(t.Context(), ids[0])
		r.ok(err)
		if string(out) != `{"n":1}` {
			t.Errorf("the output: %s", out)
		}
		back, err := r.Release(t.Context(), anyone, tokens(got[2:]))
		r.ok(err)
		if a := back.Answers[0]; !a.Recorded || a.State != ledger.StateReady {
			t.Errorf("handed back: %+v", a)
		}
		if it := r.item(ids[2]); it.State != ledger.StateReady || it.Failures+it.Losses+it.Crashes != 0 {
			t.Errorf("handed back: %+v", it)
		}
	})
}

// TestLateEnd: a late end is recorded if no other agent has claimed the item. Otherwise it changes nothing, and the
// error names the holder.
func TestLateEnd(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		ids := r.add("k", "a", "b")
		late := r.claim("slow", 2)
		r.clock.Advance(2 * time.Minute)
		if a := r.finish(late[1].Token)[0]; !a.Recorded {
			t.Errorf("the item was no other agent's: %+v", a)
		}
		r.pass(0)
		now := r.claim("quick", 1)
		for range 2 {
			a := r.finish(late[0].Token)[0]
			if a.Recorded || a.Reason != "lease_lost" || a.Holder != "quick" || a.State != ledger.StateLeased ||
				!strings.Contains(a.Message, "quick") {
				t.Errorf("a late end: %+v", a)
			}
			r.is(a.Err(), ledger.ErrLeaseLost)
		}
		for what, call := range map[string]func() (lending.LeaseAnswers, error){
			"renew":   func() (lending.LeaseAnswers, error) { return r.Renew(t.Context(), anyone, renewal(late[0].Token)) },
			"start":   func() (lending.LeaseAnswers, error) { return r.Start(t.Context(), anyone, renewal(late[0].Token)) },
			"release": func() (lending.LeaseAnswers, error) { return r.Release(t.Context(), anyone, tokens(late[:1])) },
		} {
			got, err := call()
			r.ok(err)
			if a := got.Answers[0]; a.Recorded || a.Reason != "lease_lost" || a.Holder != "quick" {
				t.Errorf("a late %s: %+v", what, a)
			}
		}
		both := r.finish(late[0].Token, now[0].Token) // each token gets its own answer
		if both[0].Recorded || !both[1].Recorded {
			t.Errorf("late and in time: %+v", both)
		}
		if a := r.finish(late[0].Token)[0]; a.Recorded || a.Holder != "" || a.State != ledger.StateDone {
			t.Errorf("after the end: %+v", a)
		}
		if a := r.finish(now[0].Token)[0]; !a.Recorded { // the first answer was lost
			t.Errorf("the same end twice: %+v", a)
		}
		if got := r.outcomes(ids[0]); got != "lost done" {
			t.Errorf("attempts: %s", got)
		}
	})
}

func renewal(tokens ...string) lending.Renewal { return lending.Renewal{Tokens: tokens} }

// TestStolenToken: a guessed token ends nothing and reveals nothing.
func TestStolenToken(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		id := r.add("k", "a", "b")[0]
		lost := r.claim("w", 1)[0]
		r.pass(2 * time.Minute)
		real := r.claim("w", 2)[0]
		lock := real.Token[strings.LastIndexByte(real.Token, '.')+1:]
		old := lost.Token[strings.LastIndexByte(lost.Token, '.')+1:]
		for _, token := range []string{fmt.Sprintf("%d.2.%s", id, uuid.New()), fmt.Sprintf("%d.2.%s", id, uuid.Nil),
			fmt.Sprintf("%d.1.%s", id, lock), fmt.Sprintf("%d.3.%s", id, lock), fmt.Sprintf("%d.2.%s", id, old),
			fmt.Sprintf("%d.2.%s", id+100, lock)} {
			a := r.finish(token)[0]
			if a.Recorded || a.Reason != "lease_lost" || a.Holder != "" || a.State != "" || a.Message !=
				"this ledger knows no claim with this token" {
				t.Errorf("%s: %+v", token, a)
			}
		}
		for _, token := range []string{"", ".", "..", fmt.Sprintf("%d.2", id), fmt.Sprintf("%d.2.", id), real.Token + "0",
			" " + real.Token, strings.ToUpper(real.Token), fmt.Sprintf("%d.2.{%s}", id, lock),
			fmt.Sprintf("%d.2.urn:uuid:%s", id, lock), fmt.Sprintf("0%d.2.%s", id, lock), fmt.Sprintf("-1.2.%s", lock),
			"1e9.2." + lock, "\x00", strings.Repeat("9", 4096), "../../etc/passwd", "' OR 1=1 --"} {
			if a := r.finish(token)[0]; a.Recorded || a.Reason != "invalid" {
				t.Errorf("%q: %+v", token, a)
			}
		}
		r.state(id, ledger.StateLeased)
		if a := r.finish(real.Token)[0]; !a.Recorded {
			t.Errorf("the real one: %+v", a)
		}
	})
}

// TestForeignLease: a caller ends only leases of its own kinds and agents.
func TestForeignLease(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		id := r.add("k", "a")[0]
		r.add("other", "b")
		mine := r.claim("box/1", 1)[0]
		for name, may := range map[string]func(kind, agent string) bool{
			"of another kind":     func(kind, _ string) bool { return kind == "other" },
			"of another's agents": func(_, agent string) bool { return strings.HasPrefix(agent, "van/") }} {
			by := lending.Caller{Name: name, May: may}
			for _, call := range []func() (lending.LeaseAnswers, error){
				func() (lending.LeaseAnswers, error) { return r.Renew(t.Context(), by, renewal(mine.Token)) },
				func() (lending.LeaseAnswers, error) { return r.Start(t.Context(), by, renewal(mine.Token)) },
				func() (lending.LeaseAnswers, error) {
					return r.Finish(t.Context(), by, []lending.Ending{{Token: mine.Token}})
				},
				func() (lending.LeaseAnswers, error) { return r.Release(t.Context(), by, []string{mine.Token}) },
			} {
				got, err := call()
				r.ok(err)
				if a := got.Answers[0]; a.Recorded || a.Reason != "scope" || a.Holder != "" {
					t.Errorf("%s: %+v", name, a)
				}
			}
			_, err := r.Claim(t.Context(), by, lending.Claim{Kind: "k", Agent: "box/1", Resume: true})
			if f := failure.Explain(err); f.Code != "scope" {
				t.Errorf("%s: the claim: %v", name, err)
			}
		}
		r.state(id, ledger.StateLeased)
	})
}

// TestCancelAndDrain: the holder gets both with its next renewal.
func TestCancelAndDrain(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		ids := r.add("k", "a", "b", "c")
		got := r.claim("w", 2)
		_, err := r.l.Cancel(t.Context(), "ann", ledger.IDs(ids[0]))
		r.ok(err)
		told, err := r.Renew(t.Context(), anyone, renewal(tokens(got)...))
		r.ok(err)
		if a, b := told.Answers[0], told.Answers[1]; !a.Recorded || !a.Cancel || !b.Recorded || b.Cancel || told.Drain {
			t.Errorf("after the cancellation: %+v", told)
		}
		begun, err := r.Start(t.Context(), anyone, renewal(tokens(got)...))
		r.ok(err)
		if a, b := begun.Answers[0], begun.Answers[1]; a.Recorded || !a.Cancel || a.Reason != "conflict" || !b.Recorded {
			t.Errorf("what was cancelled is not to begin: %+v", begun)
		}
		back, err := r.Release(t.Context(), anyone, tokens(got[:1]))
		r.ok(err)
		if a := back.Answers[0]; a.Outcome != ledger.OutcomeCancelled || a.State != ledger.StateCancelled {
			t.Errorf("the end of what was cancelled: %+v", a)
		}
		r.Drain("w", true)
		if told, err = r.Renew(t.Context(), anyone, renewal(got[1].Token)); err != nil || !told.Drain {
			t.Errorf("the agent is to end: %+v, %v", told, err)
		}
		claimed, err := r.Claim(t.Context(), anyone, lending.Claim{Kind: "k", Agent: "w", Wait: 30})
		if err != nil || !claimed.Drain || len(claimed.Leases) != 0 {
			t.Errorf("a claim of an agent that is to end: %+v, %v", claimed, err)
		}
		r.claim("v", 1)
		r.Drain("w", false)
		if told, err = r.Renew(t.Context(), anyone, renewal(got[1].Token)); err != nil || told.Drain {
			t.Errorf("the agent may go on: %+v, %v", told, err)
		}
	})
}

// TestDoubt: for a kind with on_lost = doubt, a claim counts as the start, unless the caller reports starts itself.
func TestDoubt(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.ok(r.l.SetKind(t.Context(), "test", ledger.Kind{Name: "k", OnLost: ledger.OnLostDoubt}))
		ids := r.add("k", "a", "b", "c")
		r.claim("w", 1)
		ahead := r.claim("w", 2, func(c *lending.Claim) { c.Ahead = true })
		begun, err := r.Start(t.Context(), anyone, lending.Renewal{Tokens: tokens(ahead[:1]), Lease: 90})
		r.ok(err)
		if !begun.Answers[0].Recorded {
			t.Errorf("the start: %+v", begun)
		}
		r.pass(time.Minute)
		r.state(ids[0], ledger.StateDoubt)
		r.state(ids[1], ledger.StateLeased)
		r.state(ids[2], ledger.StateReady)
		r.pass(time.Minute)
		r.state(ids[1], ledger.StateDoubt)
		if a := r.finish(ahead[0].Token)[0]; !a.Recorded || a.State != ledger.StateDone { // the report decides the doubt
			t.Errorf("a late report: %+v", a)
		}
	})
}

func TestBadCalls(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.add("k", "a")
		for field, c := range map[string]lending.Claim{
			"limit": {Kind: "k", Agent: "w", Limit: lending.MaxLeases + 1}, "wait_s": {Kind: "k", Agent: "w", Wait: 31},
			"lease_s": {Kind: "k", Agent: "w", Lease: 1 << 40}, "agent": {Kind: "k"},
			"items": {Kind: "k", Agent: "w", Items: []int64{0}}} {
			_, err := r.Claim(t.Context(), anyone, c)
			if f := failure.Explain(err); f.Code != "invalid" || !strings.HasPrefix(f.Message, field+": ") {
				t.Errorf("%s: %v", field, err)
			}
		}
		_, err := r.Claim(t.Context(), anyone, lending.Claim{Kind: "k", Agent: "w", Wait: 1, Items: []int64{1}})
		if f := failure.Explain(err); f.Message != "wait_s: goes without items" {
			t.Errorf("items that are waited for: %v", err)
		}
		if _, err := r.Claim(t.Context(), anyone, lending.Claim{Kind: "none", Agent: "w"}); failure.Explain(err).Code !=
			"not_found" {
			t.Errorf("a kind that is not known: %v", err)
		}
		token := r.claim("w", 1)[0].Token
		_, err = r.Claim(t.Context(), anyone, lending.Claim{Kind: "k", Agent: "v", Items: []int64{1}})
		if f := failure.Explain(err); f.Code != "conflict" ||
			!strings.Contains(f.Message, "item 1 is leased and was not claimed. w works on it (attempt 1)") {
			t.Errorf("an item of another agent: %v", err)
		}
		r.add("k", "secret")
		_, err = r.l.Cancel(t.Context(), "ann", ledger.IDs(2), ledger.WithReason("salary"))
		r.ok(err)
		for reads, want := range map[bool]string{true: "salary", false: "item 2 is cancelled and was not claimed. The reason"} {
			_, err := r.Claim(t.Context(), lending.Caller{Name: "w", May: anyone.May, Reads: reads}, lending.Claim{Kind: "k",
				Agent: "v", Items: []int64{2}})
			if f := failure.Explain(err); !strings.Contains(f.Message, want) {
				t.Errorf("to a caller that reads %t: %v", reads, err)
			}
		}
		if got, err := r.Claim(t.Context(), anyone, lending.Claim{Kind: "k", Agent: "v", Items: []int64{1, 2}}); err != nil ||
			len(got.Leases) != 0 {
			t.Errorf("several items, none of which is ready: %+v, %v", got, err)
		}
		for _, list := range [][]string{nil, make([]string, lending.MaxLeases+1)} {
			_, err := r.Release(t.Context(), anyone, list)
			r.is(err, ledger.ErrInvalid)
		}
		long := lending.Renewal{Tokens: []string{token}, Lease: int(bounds.MaxTTL.Seconds()) + 1}
		_, err = r.Renew(t.Context(), anyone, long)
		r.is(err, ledger.ErrInvalid)
		ended, err := r.Finish(t.Context(), anyone, []lending.Ending{{Token: token, Code: "Bad Code"}, {Token: token,
			Outcome: ledger.OutcomeSnoozed, Delay: -1}, {Token: token, Outcome: ledger.OutcomeSnoozed, Delay: 1e300},
			{Token: token}, {Token: token}})
		r.ok(err)
		for i, a := range ended.Answers {
			if good := i == 3; a.Recorded != good || !good && a.Reason != "invalid" {
				t.Errorf("end %d: %+v", i, a)
			}
		}
	})
}

// TestSnoozedTooOften: one snooze more than is allowed in a row is a failure.
func TestSnoozedTooOften(t *testing.T) {
	r := newRig(t, func(_ *testing.T, now func() time.Time) ledger.Store { return memory.New(memory.Options{Now: now}) })
	r.add("k", "a")
	for _, want := range []ledger.Outcome{ledger.OutcomeSnoozed, ledger.OutcomeFailed} {
		e := lending.Ending{Token: r.claim("w", 1)[0].Token, Outcome: ledger.OutcomeSnoozed, Code: "http_503", AtMost: 1}
		got, err := r.Finish(t.Context(), anyone, []lending.Ending{e})
		r.ok(err)
		if a := got.Answers[0]; !a.Recorded || a.Outcome != want {
			t.Errorf("%+v, want %s", a, want)
		}
		r.claim("w", 0) // without delay_s it waits a second
		r.pass(time.Second)
	}
}
