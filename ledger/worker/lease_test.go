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

func cause(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// A lease is kept as long as its handler runs, for any time, even while other workers expire leases.
func TestLeaseIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		id := r.add(ledger.NewItem{Key: "a"})[0]
		rep := r.drain(Func(func(ctx context.Context, _ *ledger.Lease) ledger.Result {
			for range 50 {
				elapse(time.Second)
				if n, err := r.Expire(ctx, 10); n != 0 || err != nil {
					t.Errorf("expired %d, %v", n, err)
				}
			}
			return ledger.Done(nil)
		}), func(c *Config) { c.Lease = 5 * time.Second })
		same(t, "report", map[ledger.Outcome]int64{ledger.OutcomeDone: 1}, rep.Outcomes)
		if n := len(r.attempts(id)); n != 1 {
			t.Errorf("%d attempts", n)
		}
		// 50 s at a third of 5 s, with four checks a second.
		if n := r.store.calls["renew"]; n < 25 || n > 31 {
			t.Errorf("renewed %d times in 50 s", n)
		}
	})
}

// When something happens to an item whose handler runs, the handler's context ends within two seconds, with the reason.
func TestContextEnds(t *testing.T) {
	takeAway := func(r *rig, id int64) error {
		if _, err := r.ForceRelease(context.Background(), "ann", ledger.IDs(id)); err != nil {
			return err
		}
		elapse(time.Millisecond)
		_, err := r.Claim(context.Background(), ledger.Claim{Kind: "k", Agent: "ann", Limit: 1})
		return err
	}
	tests := []struct {
		name   string
		act    func(r *rig, id int64) error
		want   error
		result ledger.Result // that the handler then returns
		// of the event and of the item
		accepted bool
		state    ledger.State
	}{
		{"cancelled", func(r *rig, id int64) error {
			_, err := r.Cancel(context.Background(), "ann", ledger.IDs(id))
			return err
		}, ErrCancelled, ledger.Fail(errors.New("gave up")), true, ledger.StateCancelled},
		{"cancelled, but done all the same", func(r *rig, id int64) error {
			_, err := r.Cancel(context.Background(), "ann", ledger.IDs(id))
			return err
		}, ErrCancelled, ledger.Done(nil), true, ledger.StateDone},
		{"lease taken away", takeAway, ledger.ErrLeaseLost, ledger.Done(nil), false, ledger.StateLeased},
		{"lease taken away, and the worker's own code", takeAway, ledger.ErrLeaseLost, ledger.Result{
			Outcome: ledger.OutcomeFailed, Final: true, Code: codeUnrecorded}, false, ledger.StateLeased},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				id := r.add(ledger.NewItem{Key: "a"})[0]
				var seen events
				var began atomic.Bool
				var why error
				var took time.Duration
				w := r.worker(Func(func(ctx context.Context, _ *ledger.Lease) ledger.Result {
					began.Store(true)
					elapse(10 * time.Second)
					asked := time.Now()
					if err := tt.act(r, id); err != nil {
						t.Error(err)
					}
					why = cause(ctx)
					took = time.Since(asked)
					return tt.result
				}), seen.config, func(c *Config) { c.Concurrency = 1 }) // it must not claim the item that was taken from it
				stop := r.run(w)
				elapse(20 * time.Second)
				stop()
				if !errors.Is(why, tt.want) || took > 2*time.Second {
					t.Errorf("context ended after %s: %v, want %v within 2 s", took, why, tt.want)
				}
				all := seen.list()
				if len(all) != 1 || all[0].Accepted() != tt.accepted || errors.Is(all[0].Err, ledger.ErrLeaseLost) == tt.accepted {
					t.Errorf("events %+v, want one, accepted: %v", all, tt.accepted)
				}
				if got := r.item(id).State; got != tt.state {
					t.Errorf("item is %s, want %s", got, tt.state)
				}
				if n := r.log.count("the lease had been lost"); n != 1 && !tt.accepted || n != 0 && tt.accepted {
					t.Errorf("the loss was logged %d times", n)
				}
			})
		})
	}
}

// An item that is cancelled while it lies in the buffer is not begun.
func TestCancelOfBufferedItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ids := r.addMany(100)
		var begun atomic.Int32
		stop := r.run(r.worker(Func(func(_ context.Context, ls *ledger.Lease) ledger.Result {
			if begun.Add(1) < 20 { // a rate at which the worker claims ahead
				elapse(10 * time.Millisecond)
			} else {
				elapse(time.Minute)
			}
			return ledger.Done(nil)
		}), func(c *Config) { c.Concurrency = 1; c.Lease = 4 * time.Minute }))
		elapse(time.Second)
		var buffered int64
		for _, id := range ids {
			if it := r.item(id); it.State == ledger.StateLeased && it.ID > buffered {
				buffered = it.ID
			}
		}
		if buffered == ids[19] {
			t.Fatal("nothing was claimed ahead")
		}
		must.Do(t)(r.Cancel(t.Context(), "ann", ledger.IDs(buffered)))
		elapse(100 * time.Second) // a third of the lease: then it is renewed
		if got := r.item(buffered).State; got != ledger.StateCancelled {
			t.Errorf("item is %s, want cancelled", got)
		}
		stop()
	})
}

// While the ledger is unavailable the lease cannot be renewed. The handler's context ends before the lease does, by
// this process's own clock, and its late end is recorded when the ledger is available again.
func TestLeaseIsNotTrustedBlindly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		id := r.add(ledger.NewItem{Key: "a"})[0]
		var why error
		var lasted time.Duration
		stop := r.run(r.worker(Func(func(ctx context.Context, ls *ledger.Lease) ledger.Result {
			elapse(30 * time.Second)
			r.store.away()
			began := time.Now()
			why = cause(ctx)
			lasted = time.Since(began)
			if !time.Now().Before(r.expiry(id)) {
				t.Error("the context ended after the lease")
			}
			elapse(30 * time.Second) // the lease expires
			r.store.back()
			return ledger.Done([]byte("late"))
		})))
		elapse(10 * time.Minute)
		stop()
		if !errors.Is(why, ledger.ErrLeaseLost) {
			t.Errorf("cause %v", why)
		}
		// Renewed 20 s after the claim at the latest: 10 s old when the ledger went away.
		if lasted < 33*time.Second || lasted > 54*time.Second {
			t.Errorf("the context lasted %s without renewals", lasted)
		}
		same(t, "attempts", []ledger.Outcome{ledger.OutcomeDone}, r.outcomes(id))
		if a, b := r.log.count("the ledger is unavailable"), r.log.count("the ledger is available again"); a != 1 || b != 1 {
			t.Errorf("the outage was logged %d times, its end %d times", a, b)
		}
	})
}

// expiry returns when the item's lease ends by the ledger itself, without the spy.
func (r *rig) expiry(id int64) time.Time {
	recs, err := r.store.Records(context.Background(), ledger.RecordQuery{Filter: ledger.IDs(id), Limit: 1})
	must.OK(r.t, err)
	return recs[0].Work.ExpiresAt
}

// A failure that is reported after the lease was lost does not count as a failure, if it is recorded at all.
func TestInterruptionIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		id := r.add(ledger.NewItem{Key: "a"})[0]
		var calls atomic.Int32
		rep := r.drain(Func(func(ctx context.Context, _ *ledger.Lease) ledger.Result {
			if calls.Add(1) > 1 {
				return ledger.Done(nil)
			}
			r.store.away()
			time.AfterFunc(58*time.Second, r.store.back)
			return ledger.Fail(cause(ctx))
		}))
		same(t, "attempts", []ledger.Outcome{ledger.OutcomeReleased, ledger.OutcomeDone}, r.outcomes(id))
		if rep.Outcomes[ledger.OutcomeDone] != 1 {
			t.Errorf("report %+v", rep)
		}
	})
}

// A call that hangs does not delay the end of contexts, nor later renewals.
func TestRenewalHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		id := r.add(ledger.NewItem{Key: "a"})[0]
		var hung atomic.Bool
		r.store.Store = &renewing{r.store.Store, func(ctx context.Context, next renewal) ([]ledger.Renewal, error) {
			if hung.CompareAndSwap(false, true) {
				<-ctx.Done()
				return nil, ledger.ErrUnavailable
			}
			return next()
		}}
		rep := r.drain(Func(func(ctx context.Context, _ *ledger.Lease) ledger.Result {
			select {
			case <-ctx.Done():
				return ledger.Fail(context.Cause(ctx))
			case <-time.After(5 * time.Minute):
				return ledger.Done(nil)
			}
		}))
		if rep.Outcomes[ledger.OutcomeDone] != 1 || len(r.attempts(id)) != 1 || !hung.Load() {
			t.Errorf("report %+v, hung: %v", rep, hung.Load())
		}
	})
}

// renewing is a store of which a test answers the renewals; renewal is what the store itself does.
type (
	renewing struct {
		ledger.Store
		renew func(context.Context, renewal) ([]ledger.Renewal, error)
	}
	renewal = func() ([]ledger.Renewal, error)
)

func (s *renewing) Renew(ctx context.Context, ttl time.Duration, leases []ledger.LeaseRef) ([]ledger.Renewal, error) {
	return s.renew(ctx, func() ([]ledger.Renewal, error) { return s.Store.Renew(ctx, ttl, leases) })
}

// Postgres passes over a lease whose row another transaction has locked. The worker trusts such a lease no longer than
// it lasts, and goes on if it can be extended in time.
func TestLeaseIsPassedOver(t *testing.T) {
	released := []ledger.Outcome{ledger.OutcomeReleased, ledger.OutcomeDone}
	for _, tt := range []struct {
		name     string
		start    time.Duration // of items in a kind with OnLostDoubt; 0: the kind has none
		renewals string        // p is passed over, l is done with no answer, d is done; the last one repeats
		want     []ledger.Outcome
	}{
		{"always", 0, "p", released},
		{"after the start", 10 * time.Second, "p", released},
		{"after a renewal with no answer", 0, "lp", released},
		{"for a time", 0, "pppd", []ledger.Outcome{ledger.OutcomeDone}},
		{"for a time, after the start", 10 * time.Second, "plppd", []ledger.Outcome{ledger.OutcomeDone}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				if tt.start > 0 {
					r.policy(ledger.Kind{OnLost: ledger.OnLostDoubt})
				}
				id := r.add(ledger.NewItem{Key: "a"})[0]
				began := time.Now()
				r.store.failing(func(call string) error {
					if call == "start" && time.Since(began) < tt.start {
						return ledger.ErrUnavailable
					}
					return nil
				})
				renewals := tt.renewals
				r.store.Store = &renewing{r.store.Store, func(_ context.Context, next renewal) ([]ledger.Renewal, error) {
					now := renewals[0]
					renewals = renewals[min(1, len(renewals)-1):]
					switch now {
					case 'p':
						return nil, nil
					case 'l':
						next()
						return nil, ledger.ErrUnavailable
					}
					return next()
				}}
				r.drain(Func(func(ctx context.Context, ls *ledger.Lease) ledger.Result {
					if !ls.First() {
						return ledger.Done(nil)
					}
					select {
					case <-time.After(3 * time.Minute):
						return ledger.Done(nil)
					case <-ctx.Done():
					}
					if !time.Now().Before(r.expiry(id)) {
						t.Error("the context ended after the lease")
					}
					return ledger.Release()
				}))
				same(t, "attempts", tt.want, r.outcomes(id))
			})
		})
	}
}

// A handler that ignores its timeout keeps its place but not its lease: the item is worked again.
func TestOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.policy(ledger.Kind{Timeout: 10 * time.Second})
		id := r.add(ledger.NewItem{Key: "a"})[0]
		release := make(chan struct{})
		var seen events
		var calls, running, most atomic.Int32
		w := r.worker(Func(func(context.Context, *ledger.Lease) ledger.Result {
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer running.Add(-1)
			if calls.Add(1) == 1 {
				<-release
			}
			return ledger.Done(nil)
		}), seen.config)
		rep, err := w.Drain(t.Context(), time.Minute)
		must.OK(t, err)
		same(t, "attempts", []ledger.Outcome{ledger.OutcomeLost, ledger.OutcomeDone}, r.outcomes(id))
		if rep.Outcomes[ledger.OutcomeDone] != 1 || most.Load() != 2 {
			t.Errorf("report %+v, at most %d at a time", rep, most.Load())
		}
		if n := r.log.count("did not return after its timeout"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		if n := r.log.count("level=WARN msg=\"the handler has not returned"); n != 1 {
			t.Errorf("warned %d times", n)
		}
		close(release)
	})
}

// A kind of which handlers that ignore their timeout have all places stands still. This is logged once.
func TestStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.policy(ledger.Kind{Timeout: 10 * time.Second})
		r.add(ledger.NewItem{Key: "a"}, ledger.NewItem{Key: "b"}, ledger.NewItem{Key: "c"})
		release := make(chan struct{})
		time.AfterFunc(time.Hour, func() { close(release) })
		still := func() int { return r.log.count("the kind stands still") }
		rep := r.drain(Func(func(ctx context.Context, l *ledger.Lease) ledger.Result {
			switch {
			case l.Key == "a" && l.First(): // long work that is no reason to worry
				<-ctx.Done()
			case l.Key == "b" && l.First():
				if n := still(); n != 0 {
					t.Errorf("logged %d times before it stood still", n)
				}
				<-release
			}
			return ledger.Done(nil)
		}), func(c *Config) { c.Concurrency = 1 })
		if n := still(); n != 1 || rep.Outcomes[ledger.OutcomeDone] == 0 {
			t.Errorf("logged %d times, %+v", n, rep)
		}
	})
}

// The wall clock notices time during which the monotonic clock stood still.
func TestSlept(t *testing.T) {
	start := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	tests := []struct {
		name       string
		mono, wall time.Duration
		want       bool
	}{
		{"an ordinary look", 250 * time.Millisecond, 250 * time.Millisecond, false},
		{"stopped: both clocks went on", time.Hour, time.Hour, false},
		{"suspended", 250 * time.Millisecond, time.Hour, true},
		{"the clock was put back", 250 * time.Millisecond, -time.Hour, false},
		{"the clock was put right", 250 * time.Millisecond, 2 * time.Second, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := watched{mono: start.Add(-tt.mono), wall: start.Add(-tt.wall)}
			if got := w.slept(start, 15*time.Second); got != tt.want {
				t.Errorf("slept = %v, want %v", got, tt.want)
			}
		})
	}
	var w watched
	if w.slept(start, 0) {
		t.Error("the first look has nothing to compare with")
	}
}

// After a sleep all leases are renewed at once.
func TestWatchAfterSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.worker(Func(done))
		l := w.lanes()[0]
		now := time.Now()
		young := &task{lane: l, ctx: t.Context(), phase: running, trustedUntil: now.Add(time.Hour),
			renewAt: now.Add(time.Hour),
			asked:   now}
		l.add([]*task{young})
		if renew, ask := l.watch(now, false); len(renew)+len(ask) != 0 {
			t.Errorf("an ordinary look: %d to renew, %d to ask about", len(renew), len(ask))
		}
		if renew, _ := l.watch(now, true); len(renew) != 1 {
			t.Errorf("after a sleep: %d to renew, want 1", len(renew))
		}
	})
}
