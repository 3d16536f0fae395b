package worker

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
)

// The end of a running item when the worker stops.
func TestStop(t *testing.T) {
	const grace = 30 * time.Second
	after := func(d time.Duration) Func {
		return func(ctx context.Context, _ *ledger.Lease) ledger.Result {
			select {
			case <-time.After(d):
				return ledger.Done(nil)
			case <-ctx.Done():
				return ledger.Fail(context.Cause(ctx))
			}
		}
	}
	deaf := func(d time.Duration) Func {
		return func(context.Context, *ledger.Lease) ledger.Result { elapse(d); return ledger.Done(nil) }
	}
	tests := []struct {
		name    string
		handler Func
		onLost  ledger.OnLost
		now     bool // StopNow
		outcome ledger.Outcome
		code    string
		state   ledger.State
		took    time.Duration
	}{
		{"ends within the grace", after(20 * time.Second), "", false, ledger.OutcomeDone, "", ledger.StateDone,
			10 * time.Second},
		{"returns when it is told", after(time.Hour), "", false, ledger.OutcomeReleased, "stopping", ledger.StateReady,
			grace},
		{"must not be repeated, returns when it is told", after(time.Hour), ledger.OnLostDoubt, false, ledger.OutcomeReleased,
			"stopping", ledger.StateReady, grace},
		{"ends a little later", deaf(43 * time.Second), "", false, ledger.OutcomeDone, "", ledger.StateDone,
			33 * time.Second},
		{"does not return", deaf(time.Hour), "", false, ledger.OutcomeReleased, "stopped", ledger.StateReady, grace +
			stopTime},
		{"must not be repeated, does not return", deaf(time.Hour), ledger.OnLostDoubt, false, ledger.OutcomeUnknown,
			"stopped", ledger.StateDoubt, grace + stopTime},
		{"now, returns when it is told", after(time.Hour), "", true, ledger.OutcomeReleased, "stopping", ledger.StateReady,
			0},
		{"now, does not return", deaf(time.Hour), "", true, ledger.OutcomeReleased, "stopped", ledger.StateReady, stopTime},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.policy(ledger.Kind{OnLost: tt.onLost})
				id := r.add(ledger.NewItem{Key: "a"})[0]
				w := r.worker(tt.handler, func(c *Config) { c.Grace = grace; c.Lease = 5 * time.Second })
				stop := r.run(w)
				elapse(10 * time.Second)
				if tt.now {
					w.StopNow()
				}
				began := time.Now()
				stop()
				if took := time.Since(began); took != tt.took {
					t.Errorf("the stop took %s, want %s", took, tt.took)
				}
				a := r.attempts(id)
				if len(a) != 1 || a[0].Outcome != tt.outcome || a[0].Code != tt.code {
					t.Errorf("attempts %+v, want one %s with code %q", a, tt.outcome, tt.code)
				}
				if got := r.item(id); got.State != tt.state || got.Failures != 0 {
					t.Errorf("item is %s with %d failures, want %s with none", got.State, got.Failures, tt.state)
				}
				if agents, err := r.Agents(t.Context()); len(agents) != 0 || err != nil {
					t.Errorf("agents afterwards: %v, %v", agents, err)
				}
				elapse(2 * time.Hour) // for the handlers that ignore their context
			})
		})
	}
}

// StopNow during the grace ends it, as a second Ctrl-C does.
func TestStopNowDuringGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		id := r.add(ledger.NewItem{Key: "a"})[0]
		w := r.worker(Func(toEnd))
		stop := r.run(w)
		elapse(time.Second)
		time.AfterFunc(7*time.Second, w.StopNow)
		began := time.Now()
		stop()
		if took := time.Since(began); took != 7*time.Second {
			t.Errorf("the stop took %s, want 7 s", took)
		}
		w.StopNow() // a second call is harmless
		same(t, "attempts", []ledger.Outcome{ledger.OutcomeReleased}, r.outcomes(id))
	})
}

// An attempt that ends at the moment of a stop is recorded.
func TestStopLosesNothing(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			ids := r.addMany(20)
			stop := r.run(r.worker(Func(second), func(c *Config) { c.Concurrency = 20 }))
			elapse(time.Second)
			stop()
			for _, id := range ids {
				if got := r.item(id).State; got != ledger.StateDone {
					t.Errorf("item is %s", got)
				}
			}
		})
	}
}

// Items claimed ahead are ready for others as soon as the worker begins to stop.
func TestStopHandsBackTheBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ids := r.addMany(200)
		stop := r.run(r.worker(Func(func(ctx context.Context, _ *ledger.Lease) ledger.Result {
			select {
			case <-time.After(10 * time.Millisecond):
				return ledger.Done(nil)
			case <-ctx.Done():
				return ledger.Fail(context.Cause(ctx))
			}
		})))
		elapse(200 * time.Millisecond)
		count := func(state ledger.State) int64 {
			n, err := r.Count(t.Context(), ledger.Filter{States: []ledger.State{state}})
			must.OK(t, err)
			return n
		}
		if leased := count(ledger.StateLeased); leased <= 2 {
			t.Fatalf("%d leased: nothing was claimed ahead", leased)
		}
		stop()
		if leased := count(ledger.StateLeased); leased != 0 {
			t.Errorf("%d are still leased", leased)
		}
		released := 0
		for _, id := range ids {
			for _, o := range r.outcomes(id) {
				if o == ledger.OutcomeReleased {
					released++
				} else if o != ledger.OutcomeDone {
					t.Errorf("item %d: %s", id, o)
				}
			}
		}
		if released == 0 {
			t.Error("nothing was released")
		}
	})
}

// Leases are kept until all ends are recorded, even if the ledger is unavailable meanwhile.
func TestStopWhileLedgerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		id := r.add(ledger.NewItem{Key: "a"})[0]
		stop := r.run(r.worker(takes(20 * time.Second)))
		elapse(15 * time.Second)
		r.store.away()
		time.AfterFunc(7*time.Second, r.store.back)
		began := time.Now()
		stop()
		if took := time.Since(began); took < 7*time.Second || took > 10*time.Second {
			t.Errorf("the stop took %s", took)
		}
		same(t, "attempts", []ledger.Outcome{ledger.OutcomeDone}, r.outcomes(id))
	})
}

// A ledger that stays unavailable does not keep the worker from stopping. An end that could not be recorded is
// reported, and its lease is left to expire.
func TestStopWhileLedgerStaysAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		id := r.add(ledger.NewItem{Key: "a"})[0]
		var seen events
		stop := r.run(r.worker(takes(20*time.Second), seen.config))
		elapse(15 * time.Second)
		r.store.away()
		began := time.Now()
		stop()
		if took := time.Since(began); took > 5*time.Second+finishTime+farewellTime {
			t.Errorf("the stop took %s", took)
		}
		r.store.back()
		if got := r.item(id); got.State != ledger.StateLeased {
			t.Errorf("item is %s", got.State)
		}
		if all := seen.list(); len(all) != 1 || all[0].Accepted() || all[0].Err == nil ||
			errors.Is(all[0].Err, ledger.ErrLeaseLost) {
			t.Errorf("events %+v, want one that was not accepted", all)
		}
		if n := r.log.count("could not be recorded"); n != 1 {
			t.Errorf("logged %d times", n)
		}
	})
}

// Items of a claim that runs when the worker begins to stop are handed back.
func TestStopDuringClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		slow := &slowClaims{Store: r.store.Store, took: 3 * time.Second}
		r.store.Store = slow
		id := r.add(ledger.NewItem{Key: "a"})[0]
		var begun atomic.Bool
		stop := r.run(r.worker(Func(func(context.Context, *ledger.Lease) ledger.Result {
			begun.Store(true)
			return ledger.Done(nil)
		})))
		elapse(time.Second)
		stop()
		if begun.Load() {
			t.Error("it was begun after the worker was told to stop")
		}
		if got := r.item(id); got.State != ledger.StateReady || got.Outcome != ledger.OutcomeReleased {
			t.Errorf("item is %s after %s", got.State, got.Outcome)
		}
	})
}

type slowClaims struct {
	ledger.Store
	took time.Duration
}

func (s *slowClaims) Claim(ctx context.Context, g ledger.Grant) (ledger.Claimed, error) {
	got, err := s.Store.Claim(ctx, g)
	elapse(s.took)
	return got, err
}

func TestWorkerIsRunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.worker(Func(done))
		must.Do(t)(w.Drain(t.Context(), 0))
		if err := w.Run(t.Context()); err == nil {
			t.Error("it ran twice")
		}
	})
}

// An error that waiting does not solve ends the worker in the usual way.
func TestFatalError(t *testing.T) {
	for name, when := range map[string]time.Duration{"from the start": 0, "later": 10 * time.Second} {
		fatal := map[string]error{"from the start": ledger.ErrSchema, "later": ledger.ErrDamaged}[name]
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				id := r.add(ledger.NewItem{Key: "a"})[0]
				newer := func(call string) error {
					if call == "claim" || call == "kinds" {
						return fatal
					}
					return nil
				}
				if when == 0 {
					r.store.failing(newer)
				} else {
					time.AfterFunc(when, func() { r.store.failing(newer) })
				}
				err := r.worker(takes(15 * time.Second)).Run(t.Context())
				if !errors.Is(err, fatal) {
					t.Errorf("Run: %v", err)
				}
				if n := r.log.count("trying again"); n != 0 {
					t.Error("it said that it tries again")
				}
				want := ledger.StateDone
				if when == 0 {
					want = ledger.StateReady
				}
				if got := r.item(id).State; got != want {
					t.Errorf("item is %s, want %s", got, want)
				}
			})
		})
	}
}
