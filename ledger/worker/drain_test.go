package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

func TestDrainReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.policy(ledger.Kind{MaxFailures: 2})
		soon, later := time.Now().Add(30*time.Second), time.Now().Add(time.Hour)
		r.add(ledger.NewItem{Key: "done"}, ledger.NewItem{Key: "dead"}, ledger.NewItem{Key: "doubt"},
			ledger.NewItem{Key: "skip"}, ledger.NewItem{Key: "soon", Due: soon}, ledger.NewItem{Key: "later", Due: later},
			ledger.NewItem{Key: "later still", Due: later.Add(time.Hour)}, ledger.NewItem{Key: "person's", Priority: -2})
		must.Do(t)(r.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "ann", Limit: 1, TTL: time.Hour}))
		rep := r.drain(Func(func(_ context.Context, ls *ledger.Lease) ledger.Result {
			switch ls.Key {
			case "dead":
				return ledger.Fail(errors.New("no"))
			case "doubt":
				return ledger.Doubt(errors.New("who knows"))
			case "skip":
				return ledger.Skip("nothing to do")
			}
			return ledger.Done(nil)
		}))
		want := Report{
			Outcomes: map[ledger.Outcome]int64{ledger.OutcomeDone: 2, ledger.OutcomeFailed: 2, ledger.OutcomeUnknown: 1,
				ledger.OutcomeSkipped: 1},
			Dead: 1, Doubt: 1, Waiting: 2, Held: 1, NextDue: later.UTC(),
		}
		same(t, "report", want, rep)
	})
}

// In the report, a round of a recurring item that failed for good counts as a dead item.
func TestDrainReportsFailedRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.add(ledger.NewItem{Key: "daily", Every: "day"}, ledger.NewItem{Key: "daily, fails", Every: "day"},
			ledger.NewItem{Key: "once, fails"})
		rep := r.drain(Func(func(_ context.Context, l *ledger.Lease) ledger.Result {
			if l.Key == "daily" {
				return ledger.Done(nil)
			}
			return ledger.Permanent(errors.New("no"))
		}))
		if rep.Dead != 2 || rep.Waiting != 2 || rep.Outcomes[ledger.OutcomeFailed] != 2 {
			t.Errorf("%+v", rep)
		}
	})
}

// A drain ends at once when there is nothing to wait for, and not only at the next poll.
func TestDrainIsPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.addMany(100)
		began := time.Now()
		r.drain(Func(done))
		if took := time.Since(began); took > 0 {
			t.Errorf("took %s for nothing", took)
		}
	})
}

// A drain waits for items that are due within its patience, and leaves later ones.
func TestDrainPatience(t *testing.T) {
	for _, tt := range []struct {
		due, patience time.Duration
		done          bool
	}{
		{time.Minute, time.Minute, true},
		{time.Minute + time.Millisecond, time.Minute, false},
		{time.Hour, 2 * time.Hour, true},
		{time.Second, 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			id := r.add(ledger.NewItem{Key: "a", Due: time.Now().Add(tt.due)})[0]
			must.Do(t)(r.worker(Func(done)).Drain(t.Context(), tt.patience))
			if got := r.item(id).State == ledger.StateDone; got != tt.done {
				t.Errorf("due in %s, patience %s: done = %v, want %v", tt.due, tt.patience, got, tt.done)
			}
		})
	}
}

// A drain waits for items that other programs hold: a live program finishes them, the leases of a dead one expire.
func TestDrainWaitsForOthers(t *testing.T) {
	other := ledger.Agent{Name: "other", Kinds: map[string]string{"k": ""}}
	tests := []struct {
		name  string
		other func(r *rig, ls *ledger.Lease)
		done  int64 // by this worker
	}{
		{"a live one", func(r *rig, ls *ledger.Lease) {
			elapse(5 * time.Minute)
			if err := r.Finish(context.Background(), ledger.Ending{Lease: ls, Result: ledger.Done(nil)})[0]; err != nil {
				r.t.Error(err)
			}
		}, 0},
		{"a dead one", func(*rig, *ledger.Lease) {}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				id := r.add(ledger.NewItem{Key: "a"})[0]
				must.OK(t, r.Beat(t.Context(), other, 30*time.Second))
				ls, err := r.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "other", Limit: 1, TTL: 10 * time.Minute})
				must.OK(t, err)
				go tt.other(r, ls[0])
				rep := r.drain(Func(done))
				if got := r.item(id).State; got != ledger.StateDone {
					t.Errorf("item is %s", got)
				}
				if rep.Outcomes[ledger.OutcomeDone] != tt.done {
					t.Errorf("report %+v, want %d done", rep, tt.done)
				}
			})
		})
	}
}

// A drain also works an item that moves from kind to kind by being emitted again and again.
func TestDrainFollowsWhatIsEmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		kinds := []string{"a", "b", "c"}
		const hops = 30
		must.Do(t)(r.Add(t.Context(), ledger.NewItem{Kind: "a", Scope: "s", Key: "0"}))
		var n atomic.Int32
		hop := Func(func(_ context.Context, ls *ledger.Lease) ledger.Result {
			i := n.Add(1)
			elapse(time.Duration(i%3) * time.Millisecond)
			if i == hops {
				return ledger.Done(nil)
			}
			return ledger.Done(nil, ledger.NewItem{Kind: kinds[i%3], Scope: "s", Key: fmt.Sprint(i)})
		})
		handlers := map[string]Handler{}
		for _, k := range kinds {
			handlers[k] = hop
		}
		// Two workers drain at once, and each counts while the other works.
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				w, err := New(Config{Ledger: r.Ledger, Handlers: handlers})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := w.Drain(t.Context(), 0); err != nil {
					t.Error(err)
				}
				if got := n.Load(); got != hops {
					t.Errorf("a drain ended after %d of %d hops", got, hops)
				}
			})
		}
		both.Wait()
	})
}

// An attempt that ends between the counts of two kinds is noticed only by its record.
func TestQuietLooksTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.worker(Func(done), func(c *Config) { c.Handlers["l"] = Func(done) })
		w.life = t.Context()
		if left, err := w.standingsIfQuiet(t.Context(), 0); left == nil || err != nil {
			t.Fatalf("an empty ledger is not quiet: %v, %v", left, err)
		}
		r.store.Store = &betweenLooks{Store: r.store.Store, act: func() {
			id := r.add(ledger.NewItem{Key: "a"})[0]
			ls, err := r.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "other", Limit: 1})
			if err != nil || len(ls) != 1 {
				t.Fatalf("claimed %d, %v", len(ls), err)
			}
			must.OK(t, r.Finish(t.Context(), ledger.Ending{Lease: ls[0], Result: ledger.Done(nil)})[0])
			if got := r.item(id).State; got != ledger.StateDone {
				t.Fatalf("item is %s", got)
			}
		}}
		if left, err := w.standingsIfQuiet(t.Context(), 0); left != nil || err != nil {
			t.Errorf("quiet though an attempt ended between the looks: %v, %v", left, err)
		}
	})
}

// Only ready items of the worker's own shard count.
func TestQuietIsOfTheShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		id := r.add(ledger.NewItem{Key: "a"})[0]
		mine := r.item(id).Slot % 2
		for shard, quiet := range map[int]bool{mine: false, 1 - mine: true} {
			w := r.worker(Func(done), func(c *Config) { c.Shard = scheduler.Shard{Index: shard, Count: 2} })
			w.life = t.Context()
			if left, err := w.standingsIfQuiet(t.Context(), 0); (left != nil) != quiet || err != nil {
				t.Errorf("shard %d, the item is in %d: %v, %v", shard, mine, left, err)
			}
			must.Do(t)(r.ForceRelease(t.Context(), "test", ledger.IDs(id)))
		}
	})
}

// betweenLooks acts once, after the first kind was counted.
type betweenLooks struct {
	ledger.Store
	act   func()
	acted atomic.Bool
}

func (s *betweenLooks) Standing(ctx context.Context, kind string, part scheduler.Shard) (stats.Standing, error) {
	st, err := s.Store.Standing(ctx, kind, part)
	if s.acted.CompareAndSwap(false, true) {
		s.act()
	}
	return st, err
}

// A drain does not wait for a paused kind.
func TestDrainOfPausedKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.policy(ledger.Kind{Paused: true})
		r.addMany(3)
		rep := r.drain(Func(done))
		same(t, "report", Report{Ready: 3}, rep)
	})
}

// A drain of one shard neither works the other shards nor waits for them.
func TestDrainOfShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ids := r.addMany(60)
		rep := r.drain(Func(done), func(c *Config) { c.Shard = scheduler.Shard{Index: 1, Count: 3} })
		var mine int64
		for _, id := range ids {
			it := r.item(id)
			if it.Slot%3 == 1 {
				mine++
			}
			if (it.State == ledger.StateDone) != (it.Slot%3 == 1) {
				t.Errorf("item in slot %d is %s", it.Slot, it.State)
			}
		}
		want := Report{Outcomes: map[ledger.Outcome]int64{ledger.OutcomeDone: mine}} // others are not counted
		same(t, "report", want, rep)
	})
}

// A drain that is stopped reports the unfinished items.
func TestDrainIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.addMany(10)
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		rep, err := r.worker(takes(time.Minute)).Drain(ctx, time.Hour)
		must.OK(t, err)
		want := Report{Outcomes: map[ledger.Outcome]int64{ledger.OutcomeDone: 4}, Ready: 6}
		same(t, "report", want, rep)
	})
}

// Two workers share the items; both return only when all are done, and each did some.
func TestDrainTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ids := r.addMany(100)
		var did [2]int64
		var both sync.WaitGroup
		for i := range did {
			both.Go(func() {
				rep := r.drain(takes(time.Second))
				did[i] = rep.Outcomes[ledger.OutcomeDone]
				for _, id := range ids {
					if got := r.item(id).State; got != ledger.StateDone {
						t.Errorf("worker %d returned and an item is %s", i, got)
					}
				}
			})
		}
		both.Wait()
		if did[0]+did[1] != 100 || did[0] < 40 || did[1] < 40 {
			t.Errorf("they did %v, want about half each", did)
		}
	})
}

// A drain outlasts an outage of the ledger, and a retry within its patience.
func TestDrainThroughOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ids := r.addMany(20)
		time.AfterFunc(3*time.Second, r.store.away)
		time.AfterFunc(13*time.Minute, r.store.back)
		var first sync.Map
		rep := r.drain(Func(func(_ context.Context, ls *ledger.Lease) ledger.Result {
			elapse(time.Second)
			if _, again := first.LoadOrStore(ls.ID, true); !again {
				return ledger.Fail(errors.New("not at the first try"))
			}
			return ledger.Done(nil)
		}), func(c *Config) { c.Concurrency = 4 })
		if rep.Outcomes[ledger.OutcomeDone] != 20 || rep.Outcomes[ledger.OutcomeFailed] != 20 {
			t.Errorf("report %+v", rep)
		}
		for _, id := range ids {
			if diff := cmp.Diff([]ledger.Outcome{ledger.OutcomeFailed, ledger.OutcomeDone}, r.outcomes(id)); diff != "" {
				t.Errorf("item %d (-want +got):\n%s", id, diff)
			}
		}
		if n := r.log.count("the ledger is unavailable"); n != 1 {
			t.Errorf("the outage was logged %d times", n)
		}
	})
}
