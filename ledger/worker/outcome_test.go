package worker

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
)

// handleFunc implements Handle itself; a Func runs in a goroutine.
type handleFunc func(ctx context.Context, lease *ledger.Lease, settle func(ledger.Result))

func (f handleFunc) Handle(ctx context.Context, lease *ledger.Lease, settle func(ledger.Result)) {
	f(ctx, lease, settle)
}

// The state of an item after each thing that its handler may do.
func TestOutcomes(t *testing.T) {
	type end struct {
		Outcome ledger.Outcome
		Code    string
		Error   string
		State   ledger.State
	}
	oops := errors.New("oops")
	returns := func(res ledger.Result) Handler {
		return Func(func(context.Context, *ledger.Lease) ledger.Result { return res })
	}
	tests := []struct {
		name    string
		handler Handler
		policy  ledger.Kind
		want    end
	}{
		{"done", returns(ledger.Done([]byte("out"))), ledger.Kind{}, end{ledger.OutcomeDone, "", "", ledger.StateDone}},
		{"skipped", returns(ledger.Skip("nothing to do")), ledger.Kind{}, end{ledger.OutcomeSkipped, "", "nothing to do",
			ledger.StateDone}},
		{"failed", returns(ledger.Fail(oops)), ledger.Kind{MaxFailures: 1}, end{ledger.OutcomeFailed, "", "oops",
			ledger.StateDead}},
		{"failed for good", returns(ledger.Permanent(oops)), ledger.Kind{}, end{ledger.OutcomeFailed, "", "oops",
			ledger.StateDead}},
		{"snoozed", returns(ledger.Snooze(time.Hour, "later")), ledger.Kind{}, end{ledger.OutcomeSnoozed, "", "later",
			ledger.StateWaiting}},
		{"to be retried in an hour", returns(ledger.RetryAfter(time.Hour, oops)), ledger.Kind{}, end{ledger.OutcomeFailed, "",
			"oops", ledger.StateWaiting}},
		{"in doubt", returns(ledger.Doubt(oops)), ledger.Kind{}, end{ledger.OutcomeUnknown, "", "oops", ledger.StateDoubt}},
		{"crashed", returns(ledger.Crashed("segfault")), ledger.Kind{MaxCrashes: 1}, end{ledger.OutcomeCrashed, "crashed",
			"segfault", ledger.StateDead}},
		{"panics", Func(func(context.Context, *ledger.Lease) ledger.Result { panic("ouch") }),
			ledger.Kind{MaxFailures: 1}, end{ledger.OutcomeFailed, "panic", "panic: ouch", ledger.StateDead}},
		{"panics and must not be repeated", Func(func(context.Context, *ledger.Lease) ledger.Result { panic("ouch") }),
			ledger.Kind{OnLost: ledger.OnLostDoubt}, end{ledger.OutcomeUnknown, "panic", "panic: ouch", ledger.StateDoubt}},
		{"ends its goroutine", Func(func(context.Context, *ledger.Lease) ledger.Result {
			runtime.Goexit()
			return ledger.Done(nil)
		}),
			ledger.Kind{MaxFailures: 1}, end{ledger.OutcomeFailed, "panic", "panic: the goroutine of the handler ended",
				ledger.StateDead}},
		{"panics in Handle", handleFunc(func(context.Context, *ledger.Lease, func(ledger.Result)) { panic("ouch") }),
			ledger.Kind{MaxFailures: 1}, end{ledger.OutcomeFailed, "panic", "panic: ouch", ledger.StateDead}},
		{"settles within Handle", handleFunc(func(_ context.Context, _ *ledger.Lease, settle func(ledger.Result)) {
			settle(ledger.Done(nil))
		}),
			ledger.Kind{}, end{ledger.OutcomeDone, "", "", ledger.StateDone}},
		{"settles twice", handleFunc(func(_ context.Context, _ *ledger.Lease, settle func(ledger.Result)) {
			settle(ledger.Done(nil))
			settle(ledger.Fail(oops))
		}), ledger.Kind{}, end{ledger.OutcomeDone, "", "", ledger.StateDone}},
		{"panics after it settled", handleFunc(func(_ context.Context, _ *ledger.Lease, settle func(ledger.Result)) {
			settle(ledger.Done(nil))
			panic("ouch")
		}), ledger.Kind{}, end{ledger.OutcomeDone, "", "", ledger.StateDone}},
		{"result breaks a limit", returns(ledger.Done(make([]byte, bounds.MaxOutput+1))), ledger.Kind{},
			end{ledger.OutcomeFailed, "invalid_result", "output: 1,048,577 bytes, at most 1,048,576", ledger.StateDead}},
		{"result breaks a limit, with the worker's own code", returns(ledger.Result{Outcome: ledger.OutcomeFailed,
			Code: CodeInvalid, Output: make([]byte, bounds.MaxOutput+1)}), ledger.Kind{},
			end{ledger.OutcomeFailed, "invalid_result", "output: 1,048,577 bytes, at most 1,048,576", ledger.StateDead}},
		{"outcome is none", returns(ledger.Result{Outcome: "finished"}), ledger.Kind{},
			end{ledger.OutcomeFailed, "invalid_result", `outcome: "finished" is none that a holder may report`,
				ledger.StateDead}},
		{"payload does not decode", JSON(func(context.Context, *ledger.Lease, []int) ledger.Result {
			return ledger.Done(nil)
		}), ledger.Kind{MaxFailures: 1},
			end{ledger.OutcomeFailed, "payload", "json: cannot unmarshal object into Go value of type []int", ledger.StateDead}},
		{"has recorded nothing", returns(Recorded()), ledger.Kind{MaxFailures: 1}, end{ledger.OutcomeFailed, "not_recorded",
			"the handler reported that it had recorded the end of its lease, and has called no FinishTx", ledger.StateDead}},
		{"has recorded nothing and must not be repeated", returns(Recorded()), ledger.Kind{OnLost: ledger.OnLostDoubt},
			end{ledger.OutcomeUnknown, "not_recorded",
				"the handler reported that it had recorded the end of its lease, and has called no FinishTx", ledger.StateDoubt}},
		{"overruns its timeout", Func(toEnd), ledger.Kind{Timeout: time.Second, MaxFailures: 1},
			end{ledger.OutcomeFailed, "timeout", "timed out after 1s (timeout of kind k)", ledger.StateDead}},
		{"overruns its timeout and must not be repeated", Func(toEnd), ledger.Kind{Timeout: time.Second,
			OnLost: ledger.OnLostDoubt},
			end{ledger.OutcomeUnknown, "timeout", "timed out after 1s (timeout of kind k)", ledger.StateDoubt}},
		{"is done after its timeout", Func(func(ctx context.Context, _ *ledger.Lease) ledger.Result {
			<-ctx.Done()
			return ledger.Done(nil)
		}),
			ledger.Kind{Timeout: time.Second}, end{ledger.OutcomeDone, "", "", ledger.StateDone}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.policy(tt.policy)
				id := r.add(ledger.NewItem{Key: "a", Payload: []byte(`{}`)})[0]
				var seen events
				must.Do(t)(r.worker(tt.handler, seen.config).Drain(t.Context(), time.Minute))
				attempts := r.attempts(id)
				if len(attempts) != 1 {
					t.Fatalf("%d attempts, want 1", len(attempts))
				}
				a := attempts[0]
				same(t, "in the ledger", tt.want, end{a.Outcome, a.Code, a.Error, r.item(id).State})
				all := seen.list()
				if len(all) != 1 {
					t.Fatalf("%d events, want 1", len(all))
				}
				ev := all[0]
				if !ev.Accepted() || ev.Recorded != tt.want.Outcome || ev.State != tt.want.State || ev.Lease.ID != id {
					t.Errorf("event: item %d, %s, %s; want item %d, %s, %s", ev.Lease.ID, ev.Recorded, ev.State, id, tt.want.Outcome,
						tt.want.State)
				}
				if a.Code == "panic" && !strings.Contains(a.Log, "goroutine ") {
					t.Errorf("the log has no stack: %q", a.Log)
				}
				if tt.name == "done" && !bytes.Equal(a.Output, []byte("out")) {
					t.Errorf("output %q", a.Output)
				}
			})
		})
	}
}

// The end of a lease that the handler ended itself is not recorded again.
func TestRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		id := r.add(ledger.NewItem{Key: "a"})[0]
		var seen events
		rep := r.drain(Func(func(ctx context.Context, ls *ledger.Lease) ledger.Result {
			if err := r.Finish(ctx, ledger.Ending{Lease: ls, Result: ledger.Skip("by myself")})[0]; err != nil {
				return ledger.Fail(err)
			}
			return Recorded()
		}), seen.config)
		same(t, "attempts", []ledger.Outcome{ledger.OutcomeSkipped}, r.outcomes(id))
		same(t, "report", map[ledger.Outcome]int64{OutcomeRecorded: 1}, rep.Outcomes)
		if all := seen.list(); len(all) != 1 || !all[0].Accepted() || all[0].Recorded != OutcomeRecorded {
			t.Errorf("events %+v", all)
		}
	})
}

// If the store refuses the contents of one result, the others are still recorded. The item ends with its outcome.
func TestStoreRefusesOneResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ids := r.addMany(20)
		odd := errors.New("no ≈ equivalent")
		r.store.Store = &refusing{r.store.Store, odd, ids[4]}
		rep := r.drain(Func(func(_ context.Context, ls *ledger.Lease) ledger.Result {
			elapse(time.Millisecond)
			res := ledger.Done(nil)
			if ls.ID == ids[3] {
				res.Log = "odd"
			}
			return res
		}), func(c *Config) { c.Concurrency = 20 })
		want := Report{Outcomes: map[ledger.Outcome]int64{ledger.OutcomeDone: 19, ledger.OutcomeFailed: 1}, Dead: 1}
		same(t, "report", want, rep)
		got := r.item(ids[3])
		if got.State != ledger.StateDone || !strings.HasSuffix(got.Error, "refused them: no ? equivalent") {
			t.Errorf("item: %s, error %q", got.State, got.Error)
		}
		if got := r.item(ids[4]); got.Code != "invalid_result" || got.Error != odd.Error() {
			t.Errorf("item whose plain end was refused, too: code %q, error %q", got.Code, got.Error)
		}
		if r.log.count("unavailable") > 0 {
			t.Error("the log reports an outage")
		}
	})
}

// refusing fails every completion of a batch that has the log "odd", or one given item.
type refusing struct {
	ledger.Store
	err  error
	item int64
}

func (s *refusing) Complete(ctx context.Context, conn ledger.Conn, c []ledger.Completion) ([]int64, error) {
	if slices.ContainsFunc(c, s.odd) {
		return nil, s.err
	}
	return s.Store.Complete(ctx, conn, c)
}

func (s *refusing) CompleteAndClaim(ctx context.Context, c []ledger.Completion, g ledger.Grant) ([]int64,
	ledger.Claimed, error) {
	if slices.ContainsFunc(c, s.odd) {
		return nil, ledger.Claimed{}, s.err
	}
	return s.Store.CompleteAndClaim(ctx, c, g)
}

func (s *refusing) odd(c ledger.Completion) bool { return c.Log == "odd" || c.ItemID == s.item }

// Large outputs are spread over several calls.
func TestFinishIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.addMany(40)
		sizes := &completions{Store: r.store.Store}
		r.store.Store = sizes
		r.drain(Func(func(context.Context, *ledger.Lease) ledger.Result {
			elapse(time.Second)
			return ledger.Done(make([]byte, bounds.MaxOutput))
		}), func(c *Config) { c.Concurrency = 40 })
		total := 0
		for _, n := range sizes.all {
			if total += n; n > finishBytes/bounds.MaxOutput {
				t.Errorf("a call with %d outputs of 1 MiB", n)
			}
		}
		if total != 40 {
			t.Errorf("%d completed", total)
		}
	})
}

// completions records how many completions each call had.
type completions struct {
	ledger.Store
	mu  sync.Mutex
	all []int
}

func (s *completions) Complete(ctx context.Context, conn ledger.Conn, c []ledger.Completion) ([]int64, error) {
	s.mu.Lock()
	s.all = append(s.all, len(c))
	s.mu.Unlock()
	return s.Store.Complete(ctx, conn, c)
}

func TestEventTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.add(ledger.NewItem{Key: "a"}, ledger.NewItem{Key: "b"})
		elapse(5 * time.Second) // both have been ready for so long when they are worked
		var seen events
		r.drain(takes(3*time.Second), seen.config, func(c *Config) { c.Concurrency = 1 })
		var got []time.Duration
		for _, ev := range seen.list() {
			got = append(got, ev.Waited, ev.Worked)
		}
		if diff := cmp.Diff([]time.Duration{5 * time.Second, 3 * time.Second, 8 * time.Second, 3 * time.Second},
			got); diff != "" {
			t.Errorf("waited, worked (-want +got):\n%s", diff)
		}
	})
}
