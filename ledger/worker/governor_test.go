package worker

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/ledger"
)

// governor is a Governor with fixed answers.
type governor struct {
	Func
	gauge

	mu       sync.Mutex
	limit    int
	until    time.Time
	stalled  time.Time
	policies []ledger.Kind

	handedBack []time.Duration // grace of each call
}

func (g *governor) Handle(ctx context.Context, ls *ledger.Lease, settle func(ledger.Result)) {
	g.in()
	g.Func.Handle(ctx, ls, func(res ledger.Result) { g.out(); settle(res) })
}

func (g *governor) Govern(k ledger.Kind) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.policies = append(g.policies, k)
}

func (g *governor) Limit() (int, time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Now().Before(g.until) {
		return 0, g.until
	}
	return g.limit, time.Time{}
}

func (g *governor) HandBack(grace time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.handedBack = append(g.handedBack, grace)
}

func (g *governor) Stalled() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stalled
}

func (g *governor) set(limit int, until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit, g.until = limit, until
}

var second = takes(time.Second)

// The governor's limit holds, not the concurrency, and a change of it holds as well.
func TestGovernorLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.addMany(60)
		g := &governor{Func: second, limit: 3}
		time.AfterFunc(5500*time.Millisecond, func() { g.set(9, time.Time{}) })
		began := time.Now()
		rep := r.drain(g)
		if rep.Outcomes[ledger.OutcomeDone] != 60 || g.most.Load() != 9 {
			t.Errorf("report %+v, at most %d at a time, want 9", rep, g.most.Load())
		}
		if took := time.Since(began); took < 10*time.Second || took > 13*time.Second {
			t.Errorf("took %s, want 18 at 3 and 42 at 9 a second", took)
		}
	})
}

// While the governor takes no items, nothing is claimed. Items in the buffer are handed back after some time. Work
// continues at the time that the governor gave.
func TestGovernorPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ids := r.addMany(300)
		g := &governor{Func: func(context.Context, *ledger.Lease) ledger.Result {
			elapse(10 * time.Millisecond)
			return ledger.Done(nil)
		}, limit: 1}
		stop := r.run(r.worker(g))
		elapse(time.Second)
		began := time.Now()
		g.set(1, began.Add(10*time.Minute))
		states := func() map[ledger.State]int {
			n := map[ledger.State]int{}
			for _, id := range ids {
				n[r.item(id).State]++
			}
			return n
		}
		elapse(time.Second)
		before := states()
		if before[ledger.StateLeased] == 0 {
			t.Fatal("nothing was claimed ahead")
		}
		elapse(5 * time.Minute)
		want := map[ledger.State]int{ledger.StateDone: before[ledger.StateDone],
			ledger.StateReady: 300 - before[ledger.StateDone]}
		same(t, "in the middle of the pause", want, states())
		elapse(5*time.Minute + 2*time.Second)
		if got := states()[ledger.StateDone]; got != 300 {
			t.Errorf("%d done 3 s after the pause", got)
		}
		stop()
	})
}

// HandBack of a governor is called once, as soon as the worker stops, and no other method after that.
func TestGovernorHandsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.addMany(1)
		g := &governor{Func: func(context.Context, *ledger.Lease) ledger.Result {
			elapse(10 * time.Second)
			return ledger.Done(nil)
		}, limit: 1}
		stop := r.run(r.worker(g))
		elapse(time.Second)
		if len(g.handedBack) != 0 {
			t.Errorf("handed back before the stop: %v", g.handedBack)
		}
		go func() {
			elapse(time.Second)
			g.mu.Lock()
			defer g.mu.Unlock()
			if len(g.handedBack) != 1 || g.handedBack[0] != defaultGrace {
				t.Errorf("while the last item runs: %v", g.handedBack)
			}
		}()
		stop()
		if len(g.handedBack) != 1 {
			t.Errorf("at the end: %v", g.handedBack)
		}
	})
}

// A governor that takes no items is asked again at the time that it gave.
func TestGovernorIsAskedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.add(ledger.NewItem{Key: "a"})
		began := time.Now()
		r.drain(&governor{Func: second, limit: 1, until: began.Add(300 * time.Millisecond)})
		if took := time.Since(began); took != 1300*time.Millisecond {
			t.Errorf("took %s, want 300 ms and a second", took)
		}
	})
}

// A drain waits for a handler that takes no items, but not for ever.
func TestDrainOfPausedGovernor(t *testing.T) {
	for _, tt := range []struct {
		pause, patience time.Duration
		done            int64
	}{{30 * time.Second, 0, 5}, {5 * time.Minute, 0, 0}, {5 * time.Minute, time.Minute, 0}, {5 * time.Minute,
		10 * time.Minute, 5}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.addMany(5)
			g := &governor{Func: second, limit: 1, until: time.Now().Add(tt.pause)}
			rep, err := r.worker(g).Drain(t.Context(), tt.patience)
			if err != nil || rep.Outcomes[ledger.OutcomeDone] != tt.done || rep.Ready != 5-tt.done {
				t.Errorf("paused for %s, patience %s: %+v, %v; want %d done", tt.pause, tt.patience, rep, err, tt.done)
			}
		})
	}
}

// The governor gets the policy before the first item, and each change of it. It ends attempts at their timeout itself.
func TestGovernorIsToldThePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.policy(ledger.Kind{Timeout: time.Second, MaxFailures: 7})
		id := r.add(ledger.NewItem{Key: "a"})[0]
		g := &governor{Func: func(ctx context.Context, _ *ledger.Lease) ledger.Result {
			if _, limited := ctx.Deadline(); limited {
				t.Error("the worker keeps the time of a governor")
			}
			elapse(time.Minute)
			return ledger.Done(nil)
		}, limit: 1}
		stop := r.run(r.worker(g))
		elapse(15 * time.Second)
		r.policy(ledger.Kind{Timeout: time.Hour})
		elapse(15 * time.Second)
		stop()
		if got := r.outcomes(id); len(got) != 1 {
			t.Errorf("attempts %v", got)
		}
		distinct := slices.CompactFunc(g.policies, func(a, b ledger.Kind) bool { return cmp.Equal(a, b) })
		want := []ledger.Kind{{Name: "k", Timeout: time.Second, MaxFailures: 7}, {Name: "k", Timeout: time.Hour}}
		same(t, "policies", want, distinct)
	})
}
