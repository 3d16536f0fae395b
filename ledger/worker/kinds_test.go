package worker

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
)

// works returns the kinds of the only live agent.
func (r *rig) works() map[string]string {
	r.t.Helper()
	agents, err := r.Agents(context.Background())
	if err != nil || len(agents) != 1 {
		r.t.Fatalf("agents %v, %v", agents, err)
	}
	return agents[0].Kinds
}

// A kind is taken and dropped while another one continues. Running items have their grace; the others are handed back.
func TestTakeAndDrop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.addMany(60)
		w := r.worker(Func(second), func(c *Config) { c.Concurrency, c.Grace = 1, 3*time.Second })
		stop := r.run(w)
		elapse(5 * time.Second)
		ids := r.add(ledger.NewItem{Kind: "b", Key: "1"}, ledger.NewItem{Kind: "b", Key: "2"})
		must.OK(t, w.Take(t.Context(), "b", Func(second), KindConfig{Definition: "slow@1"}, func(me ledger.Agent) error {
			return r.Define(t.Context(), me, "b", "slow@1", "")
		}))
		same(t, "heartbeat after Take", map[string]string{"k": "", "b": "slow@1"}, r.works())
		elapse(time.Second / 2)
		w.Drop("b")
		same(t, "heartbeat after Drop", map[string]string{"k": ""}, r.works())
		if first, last := r.item(ids[0]), r.item(ids[1]); first.State != ledger.StateDone ||
			last.State != ledger.StateReady {
			t.Errorf("what ran is %s, what had not begun is %s", first.State, last.State)
		}
		must.OK(t, w.Take(t.Context(), "b", Func(toEnd), KindConfig{}, nil))
		elapse(time.Second)
		began := time.Now()
		w.Drop("b")
		w.Drop("b") // a second call is harmless
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("the grace took %s", took)
		}
		must.OK(t, w.Take(t.Context(), "b", Func(toEnd), KindConfig{}, nil))
		elapse(time.Second)
		r.store.away() // so that both calls wait until the end is recorded
		time.AfterFunc(5*time.Second, r.store.back)
		returned := make(chan struct{}, 2)
		for range 2 {
			go func() {
				w.Drop("b")
				returned <- struct{}{}
			}()
		}
		elapse(30 * time.Second)
		if n := len(returned); n != 2 {
			t.Errorf("%d of two calls at the same time have returned", n)
		}
		if last := r.item(ids[1]); last.State != ledger.StateReady || last.Failures != 0 {
			t.Errorf("what did not end is %s with %d failures", last.State, last.Failures)
		}
		must.OK(t, w.Take(t.Context(), "b", Func(done), KindConfig{}, nil))
		elapse(60 * time.Second)
		stop()
		if last := r.item(ids[1]); last.State != ledger.StateDone {
			t.Errorf("what is taken up again is %s", last.State)
		}
		if n, err := r.Count(t.Context(), ledger.Filter{Kinds: []string{"k"}, States: []ledger.State{ledger.StateDone}}); n !=
			60 || err != nil {
			t.Errorf("%d of the other kind, %v", n, err)
		}
	})
}

// Take refuses a kind that the worker has, an invalid kind, and any kind after the worker has ended. A refused kind is
// not in the heartbeat.
func TestTakeRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.worker(Func(done))
		stop := r.run(w)
		elapse(time.Second)
		never := func(ledger.Agent) error { // it would change the definition of a kind that is worked
			t.Error("admit was called")
			return nil
		}
		if err := w.Take(t.Context(), "k", Func(done), KindConfig{}, never); !errors.Is(err, ledger.ErrInvalid) {
			t.Errorf("twice: %v", err)
		}
		refused := errors.New("others work with other settings")
		if err := w.Take(t.Context(), "b", Func(done), KindConfig{}, func(ledger.Agent) error {
			return refused
		}); !errors.Is(err, refused) {
			t.Errorf("refused: %v", err)
		}
		same(t, "heartbeat", map[string]string{"k": ""}, r.works())
		stop()
		if err := w.Take(t.Context(), "b", Func(done), KindConfig{}, never); !errors.Is(err, ErrEnded) {
			t.Errorf("after the end: %v", err)
		}
		w.Drop("k")
		w = r.worker(Func(done))
		over, end := context.WithCancel(t.Context())
		end()
		must.OK(t, w.Run(over))
		if err := w.Take(t.Context(), "b", Func(done), KindConfig{}, nil); !errors.Is(err, ErrEnded) {
			t.Errorf("after an end before the start: %v", err)
		}
	})
}

// A worker takes and drops kinds before it runs as well.
func TestTakeBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ids := r.add(ledger.NewItem{Key: "a"}, ledger.NewItem{Kind: "b", Key: "a"})
		w := r.worker(Func(done))
		must.OK(t, w.Take(t.Context(), "b", Func(done), KindConfig{}, nil))
		w.Drop("k")
		must.Do(t)(w.Drain(t.Context(), 0))
		if a, b := r.item(ids[0]), r.item(ids[1]); a.State != ledger.StateReady || b.State != ledger.StateDone {
			t.Errorf("the dropped kind is %s, the taken one %s", a.State, b.State)
		}
	})
}

// A worker ends while a kind is dropped, at any moment: nothing is lost, and both calls return.
func TestStopDuringDrop(t *testing.T) {
	for _, after := range []time.Duration{0, time.Millisecond, 4 * time.Second, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			id := r.add(ledger.NewItem{Key: "a"})[0]
			w := r.worker(Func(toEnd), func(c *Config) { c.Grace = 5 * time.Second })
			stop := r.run(w)
			elapse(time.Second)
			began, dropped := time.Now(), make(chan struct{})
			go func() {
				defer close(dropped)
				w.Drop("k")
			}()
			elapse(after)
			stop()
			<-dropped
			if took := time.Since(began); took != 5*time.Second {
				t.Errorf("stopped %s after the drop: %s in all", after, took)
			}
			if got := r.outcomes(id); !slices.Equal(got, []ledger.Outcome{ledger.OutcomeReleased}) {
				t.Errorf("attempts %v", got)
			}
		})
	}
}

// Kinds are taken and dropped at random while items are added: each item is done once, and none is held at the end.
func TestTakeAndDropAtRandom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.worker(Func(second), func(c *Config) { c.Concurrency, c.Grace = 7, 10*time.Second })
		stop := r.run(w)
		ids := r.addMany(300)
		for i := range 40 {
			elapse(time.Duration(137*i%900) * time.Millisecond)
			w.Drop("k")
			must.OK(t, w.Take(t.Context(), "k", Func(second), KindConfig{}, nil))
		}
		elapse(5 * time.Minute)
		stop()
		for _, id := range ids {
			done := 0
			for _, o := range r.outcomes(id) {
				if o == ledger.OutcomeDone {
					done++
				} else if o != ledger.OutcomeReleased {
					t.Errorf("item %d: an attempt is %s", id, o)
				}
			}
			if done != 1 || r.item(id).State != ledger.StateDone {
				t.Errorf("item %d was done %d times and is %s", id, done, r.item(id).State)
			}
		}
	})
}
