package worker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// gauge counts how many calls run at a time.
type gauge struct{ now, most atomic.Int32 }

func (g *gauge) in() {
	n := g.now.Add(1)
	for m := g.most.Load(); n > m && !g.most.CompareAndSwap(m, n); m = g.most.Load() {
	}
}
func (g *gauge) out() { g.now.Add(-1) }

func TestConcurrency(t *testing.T) {
	for _, n := range []int{1, 3, 64} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.addMany(200)
			var g gauge
			began := time.Now()
			rep := r.drain(Func(func(context.Context, *ledger.Lease) ledger.Result {
				g.in()
				defer g.out()
				elapse(time.Second)
				return ledger.Done(nil)
			}), func(c *Config) { c.Concurrency = n })
			if rep.Outcomes[ledger.OutcomeDone] != 200 || g.most.Load() != int32(n) {
				t.Errorf("concurrency %d: %d at a time, report %+v", n, g.most.Load(), rep)
			}
			// All places are taken while there is something to do.
			if want := time.Duration((200+n-1)/n) * time.Second; time.Since(began) > want+2*time.Second {
				t.Errorf("concurrency %d: took %s, want %s", n, time.Since(began), want)
			}
		})
	}
}

// The number of claimed items follows the number that can begin soon.
func TestClaimSizes(t *testing.T) {
	tests := []struct {
		name        string
		each        time.Duration // that an item takes
		items       int
		payload     int
		least, most int // of the largest claim
	}{
		{"minutes: what can begin now", 2 * time.Minute, 20, 0, 2, 2},
		{"a second: one ahead", time.Second, 30, 0, 2, 3},
		{"a tenth of a second: ten ahead", 100 * time.Millisecond, 300, 0, 5, 12},
		{"a millisecond: hundreds", time.Millisecond, 3000, 0, 400, 1000},
		{"microseconds: never above a thousand", 10 * time.Microsecond, 8000, 0, 900, 1000},
		{"microseconds and large: by their size", 10 * time.Microsecond, 60, 1 << 20, 2, 18},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.store.Store = &quick{Store: r.store.Store}
				items := make([]ledger.NewItem, tt.items)
				payload := make([]byte, tt.payload)
				for i := range items {
					items[i] = ledger.NewItem{Kind: "k", Key: string(rune('a'+i%26)) + time.Duration(i).String(), Payload: payload}
				}
				for chunk := range slices.Chunk(items, 5000) {
					r.add(chunk...)
				}
				r.drain(takes(tt.each))
				largest := slices.Max(r.store.limits())
				if largest < tt.least || largest > tt.most {
					t.Errorf("the largest claim asked for %d, want %d … %d; all: %v", largest, tt.least, tt.most, r.store.limits())
				}
			})
		})
	}
}

// quick answers claims from a list: the store in memory sorts its items for every claim.
type quick struct {
	ledger.Store
	mu    sync.Mutex
	ready []ledger.Record
}

func (s *quick) Claim(ctx context.Context, g ledger.Grant) (ledger.Claimed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ready) == 0 {
		many := g
		many.Limit = 30_000
		got, err := s.Store.Claim(ctx, many)
		if err != nil {
			return got, err
		}
		s.ready = got.Records
	}
	n := min(g.Limit, len(s.ready))
	recs := s.ready[:n:n]
	s.ready = s.ready[n:]
	return ledger.Claimed{Records: recs}, nil
}

// Items that lie in the buffer too long, because handlers have become slow, are handed back.
func TestStaleBufferIsHandedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ids := r.addMany(500)
		var n atomic.Int32
		stop := r.run(r.worker(Func(func(context.Context, *ledger.Lease) ledger.Result {
			if n.Add(1) < 100 {
				elapse(5 * time.Millisecond)
			} else {
				elapse(2 * time.Minute)
			}
			return ledger.Done(nil)
		})))
		leased := func() (n int) {
			for _, id := range ids {
				if r.item(id).State == ledger.StateLeased {
					n++
				}
			}
			return n
		}
		elapse(time.Second)
		if leased() <= 2 {
			t.Fatal("nothing was claimed ahead")
		}
		elapse(15 * time.Second) // a quarter of the lease
		if got := leased(); got != 2 {
			t.Errorf("%d are leased, want the 2 that run", got)
		}
		go stop()
		elapse(3 * time.Minute)
	})
}

// Of kinds whose items must not be begun twice, no more items are claimed than can begin, and the start is committed
// before the handler sees an item.
func TestDoubtfulKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.policy(ledger.Kind{OnLost: ledger.OnLostDoubt})
		r.addMany(100)
		rep := r.drain(Func(func(ctx context.Context, ls *ledger.Lease) ledger.Result {
			recs, err := r.store.Records(ctx, ledger.RecordQuery{Filter: ledger.IDs(ls.ID), Limit: 1})
			if err != nil || recs[0].Work.StartedAt.IsZero() {
				t.Errorf("item %d is with the handler and not marked as started (%v)", ls.ID, err)
			}
			elapse(time.Millisecond)
			return ledger.Done(nil)
		}), func(c *Config) { c.Concurrency = 5 })
		if rep.Outcomes[ledger.OutcomeDone] != 100 {
			t.Errorf("report %+v", rep)
		}
		if most := slices.Max(r.store.limits()); most != 5 {
			t.Errorf("claimed %d at once, want 5", most)
		}
		if r.store.calls["start"] >= 100 {
			t.Errorf("%d calls of Start: not in batches", r.store.calls["start"])
		}
	})
}

// An item whose start was refused is not begun: it was cancelled, or another worker has it.
func TestStartRefused(t *testing.T) {
	tests := []struct {
		name  string
		act   func(r *rig, id int64) error
		state ledger.State
	}{
		{"cancelled", func(r *rig, id int64) error {
			_, err := r.Cancel(context.Background(), "ann", ledger.IDs(id))
			return err
		}, ledger.StateCancelled},
		{"taken away", func(r *rig, id int64) error {
			_, err := r.ForceRelease(context.Background(), "ann", ledger.IDs(id))
			return err
		}, ledger.StateDone},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.policy(ledger.Kind{OnLost: ledger.OnLostDoubt})
				id := r.add(ledger.NewItem{Key: "a"})[0]
				var once sync.Once
				r.store.failing(func(call string) error {
					if call == "start" {
						once.Do(func() {
							go func() { // the spy is locked now
								if err := tt.act(r, id); err != nil {
									t.Error(err)
								}
							}()
						})
						return ledger.ErrUnavailable // the worker asks again in a moment
					}
					return nil
				})
				time.AfterFunc(time.Second, r.store.back)
				var begun atomic.Int32
				r.drain(Func(func(context.Context, *ledger.Lease) ledger.Result { begun.Add(1); return ledger.Done(nil) }))
				if got := r.item(id).State; got != tt.state {
					t.Errorf("item is %s, want %s", got, tt.state)
				}
				if want := int32(len(r.attempts(id)) - 1); begun.Load() != want {
					t.Errorf("the handler saw it %d times, want %d", begun.Load(), want)
				}
			})
		})
	}
}

// crashedTwice adds an item that has crashed twice already, so that it must run alone.
func (r *rig) crashedTwice() int64 {
	r.t.Helper()
	id := r.add(ledger.NewItem{Key: "poison"})[0]
	r.drain(Func(func(context.Context, *ledger.Lease) ledger.Result { return ledger.Crashed("segmentation fault") }),
		func(c *Config) { c.MaxItems = 2 })
	if it := r.item(id); it.Crashes != 2 {
		r.t.Fatalf("%d crashes", it.Crashes)
	}
	elapse(10 * time.Second) // it is ready again
	return id
}

// An item that is suspected of killing its worker runs alone: it begins when all running items have ended, and ready
// items wait for its end.
func TestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		poison := r.crashedTwice()
		for _, priority := range []int16{-1, 1} { // some before it, some after it
			for i := range 20 {
				r.add(ledger.NewItem{Key: fmt.Sprint(priority, " ", i), Priority: priority})
			}
		}
		var g gauge
		var beside []int32
		rep := r.drain(Func(func(_ context.Context, ls *ledger.Lease) ledger.Result {
			g.in()
			defer g.out()
			if ls.ID != poison {
				elapse(time.Second)
				return ledger.Done(nil)
			}
			beside = append(beside, g.now.Load())
			elapse(10 * time.Second)
			beside = append(beside, g.now.Load())
			return ledger.Crashed("segmentation fault")
		}), func(c *Config) { c.Concurrency = 3 })
		want := Report{Outcomes: map[ledger.Outcome]int64{ledger.OutcomeDone: 40, ledger.OutcomeCrashed: 1}, Dead: 1}
		same(t, "report", want, rep)
		same(t, "running while the poison was alone", []int32{1, 1}, beside)
		if g.most.Load() != 3 {
			t.Errorf("at most %d at a time", g.most.Load())
		}
	})
}

// resuming is a ledger over HTTP of which a claim also returns the items of two claims whose answers were lost.
type resuming struct{ *ledger.Ledger }

func (l resuming) ClaimWithin(ctx context.Context, c ledger.Claim) (all []*ledger.Lease, held scheduler.HeldBack,
	err error) {
	for range 2 {
		var got []*ledger.Lease
		if got, held, err = l.Ledger.ClaimWithin(ctx, c); err != nil {
			break
		}
		all = append(all, got...)
	}
	return all, held, err
}

func (l resuming) FinishAndClaim(ctx context.Context, c ledger.Claim, e ...ledger.Ending) (errs []error,
	all []*ledger.Lease, held scheduler.HeldBack, err error) {
	errs = l.Finish(ctx, e...)
	all, held, err = l.ClaimWithin(ctx, c)
	return errs, all, held, err
}

// Several items that must run alone may come in one claim, and with others. They run one after the other.
func TestAloneTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.add(ledger.NewItem{Key: "one"}, ledger.NewItem{Key: "two"})
		r.drain(Func(func(context.Context, *ledger.Lease) ledger.Result { return ledger.Crashed("segmentation fault") }),
			func(c *Config) { c.MaxItems = 4 })
		elapse(time.Minute) // they are ready again
		r.add(ledger.NewItem{Key: "plain", Priority: 1})
		var g gauge
		alone := 0
		rep := r.drain(Func(func(_ context.Context, ls *ledger.Lease) ledger.Result {
			g.in()
			defer g.out()
			if ls.Alone {
				alone++
			}
			elapse(time.Minute) // longer than a lease
			return ledger.Done(nil)
		}), func(c *Config) { c.Ledger = resuming{r.Ledger} })
		if rep.Outcomes[ledger.OutcomeDone] != 3 || alone != 2 || g.most.Load() != 1 {
			t.Errorf("%+v, %d alone, %d at a time", rep, alone, g.most.Load())
		}
	})
}

// An item whose lease could not be renewed while it waited to run alone is not begun.
func TestAloneWaitsTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		poison := r.crashedTwice()
		r.add(ledger.NewItem{Key: "long", Priority: -1})
		r.store.failing(func(call string) error {
			if call == "renew" {
				return ledger.ErrUnavailable
			}
			return nil
		})
		time.AfterFunc(100*time.Second, r.store.back)
		r.drain(Func(func(ctx context.Context, ls *ledger.Lease) ledger.Result {
			if ls.Key == "long" && ls.Attempt == 1 {
				err := cause(ctx)
				elapse(5 * time.Second) // the claim may have been a little later
				return ledger.Fail(err)
			}
			return ledger.Done(nil)
		}))
		want := []ledger.Outcome{ledger.OutcomeCrashed, ledger.OutcomeCrashed, ledger.OutcomeReleased, ledger.OutcomeDone}
		same(t, "attempts", want, r.outcomes(poison))
	})
}

// An item that was given to another while it waited to run alone is not begun.
func TestAloneIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		poison := r.crashedTwice()
		r.add(ledger.NewItem{Key: "long", Priority: -1})
		time.AfterFunc(10*time.Second, func() {
			must.Do(t)(r.ForceRelease(context.Background(), "ann", ledger.IDs(poison)))
			elapse(time.Millisecond)
			got, err := r.Claim(context.Background(), ledger.Claim{Kind: "k", Agent: "ann", Limit: 1})
			if err != nil || len(got) != 1 || got[0].ID != poison {
				t.Errorf("%v, %v", got, err)
				return
			}
		})
		r.drain(Func(func(_ context.Context, ls *ledger.Lease) ledger.Result {
			if ls.ID == poison {
				t.Error("two work it at a time")
			}
			elapse(40 * time.Second)
			return ledger.Done(nil)
		}))
		same(t, "agent", "ann", r.item(poison).Agent)
	})
}

// After a hint the worker claims at once; without one it claims within the interval Poll.
func TestHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var seen events
		stop := r.run(r.worker(Func(done), seen.config))
		elapse(10 * time.Second)
		r.add(ledger.NewItem{Key: "hinted"})
		elapse(10 * time.Second)
		// Another process adds items, without a notification.
		must.Do(t)(ledger.New(r.store.Store, ledger.Options{}).Add(t.Context(), ledger.NewItem{Kind: "k", Key: "quiet"}))
		elapse(10 * time.Second)
		stop()
		if all := seen.list(); len(all) != 2 || all[0].Waited != 0 || all[1].Waited > 1250*time.Millisecond {
			t.Errorf("%+v, want waits of 0 and at most a poll", all)
		}
	})
}

// A waiting item is worked when it is due, and not up to one Poll later.
func TestRetriesAreInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.policy(ledger.Kind{Backoff: ledger.Backoff{Base: 100 * time.Millisecond}}) // 200, 400, 800 ms
		r.add(ledger.NewItem{Key: "a"}, ledger.NewItem{Key: "b", Due: time.Now().Add(3300 * time.Millisecond)})
		began := time.Now()
		var at []time.Duration
		var mu sync.Mutex
		r.drain(Func(func(_ context.Context, ls *ledger.Lease) ledger.Result {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Since(began).Round(10*time.Millisecond))
			if ls.Key == "a" && ls.Attempt < 4 {
				return ledger.Fail(context.Canceled)
			}
			return ledger.Done(nil)
		}))
		ms := time.Millisecond
		same(t, "worked at", []time.Duration{0, 200 * ms, 600 * ms, 1400 * ms, 3300 * ms}, at)
	})
}

func TestMaxItems(t *testing.T) {
	for _, most := range []int{1, 3, 7, 30} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.store.Store = &slowClaims{Store: r.store.Store, took: 3 * time.Second} // both kinds claim at once
			r.addMany(30)
			r.add(ledger.NewItem{Kind: "other", Key: "a"}, ledger.NewItem{Kind: "other", Key: "b"})
			h := takes(time.Second)
			w := r.worker(h, func(c *Config) {
				c.MaxItems = most
				c.Handlers["other"] = h
			})
			must.OK(t, w.Run(t.Context()))
			got, err := r.Count(t.Context(), ledger.Filter{States: []ledger.State{ledger.StateDone}})
			if err != nil || got != int64(most) {
				t.Errorf("%d done (%v), want %d", got, err, most)
			}
		})
	}
}
