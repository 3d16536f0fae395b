package worker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// Ended attempts are tallied by the minute, also through an outage and at the stop, with few calls.
func TestTallies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.policy(ledger.Kind{MaxFailures: 1})
		var items []ledger.NewItem
		for i := range 40 {
			items = append(items, ledger.NewItem{Key: fmt.Sprint(i), Due: time.Now().Add(time.Duration(i) * 5 * time.Second)})
		}
		r.add(items...)
		r.store.failing(func(call string) error {
			if n := r.store.calls["tally"]; call == "tally" && n >= 3 && n < 6 {
				return ledger.ErrUnavailable
			}
			return nil
		})
		began := time.Now()
		n := 0
		work := Func(func(context.Context, *ledger.Lease) ledger.Result {
			elapse(10 * time.Millisecond)
			switch n++; n % 4 {
			case 0:
				return ledger.Fail(errors.New("no"))
			case 1:
				return ledger.Doubt(errors.New("who knows"))
			}
			return ledger.Done(nil)
		})
		must.Do(t)(r.worker(work, one).Drain(t.Context(), time.Minute))
		if calls := r.store.calls["tally"]; calls < 4 || calls > 80 {
			t.Errorf("%d calls", calls)
		}
		got, err := r.store.Tallies(t.Context(), time.Time{})
		must.OK(t, err)
		var sum stats.Minute
		for _, m := range got {
			if m.At.Before(began.Add(-time.Minute)) || m.At.After(time.Now()) || m.At.Second() != 0 || m.Kind != "k" {
				t.Errorf("tally %+v", m)
			}
			sum.Done += m.Done
			sum.Failed += m.Failed
			sum.Other += m.Other
			sum.Worked += m.Worked
			sum.Waits.Add(m.Waits)
			sum.Works.Add(m.Works)
		}
		want := stats.Minute{Done: 20, Failed: 10, Other: 10, Worked: 400 * time.Millisecond, Works: stats.Latencies{2: 40},
			Waits: sum.Waits} // it waits for the next poll
		if diff := cmp.Diff(want, sum); diff != "" || len(got) < 3 {
			t.Errorf("%d minutes (-want +got):\n%s", len(got), diff)
		}
		if n := sum.Waits.Total(); n != 40 || sum.Waits.Within(100) > 2*maxPoll {
			t.Errorf("%d waits, the longest below %s", n, sum.Waits.Within(100))
		}
	})
}

// A worker's heartbeat has its shard, its clock skew, and the kinds that are not worked because their plugin crashes.
func TestHeartbeatDetails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		g := &governor{Func: second, stalled: time.Now().Add(time.Minute)}
		shard := scheduler.Shard{Index: 1, Count: 3}
		w := r.worker(g, func(c *Config) { c.Shard = shard })
		w.life, w.base = t.Context(), t.Context()
		w.clock.set(time.Now(), time.Now().Add(3*time.Second))
		beat := func() ledger.Agent {
			must.OK(t, w.beat(t.Context()))
			agents, err := r.Agents(t.Context())
			if err != nil || len(agents) != 1 {
				t.Fatal(agents, err)
			}
			return agents[0]
		}
		if a := beat(); len(a.Stalled) != 1 || !a.Stalled["k"].Equal(g.stalled.Add(-3*time.Second)) ||
			a.Shard != shard || a.Skew != 3*time.Second {
			t.Errorf("%+v, want stalled until %s, 3 s earlier", a, g.stalled)
		}
		g.stalled = time.Time{}
		if a := beat(); len(a.Stalled) != 0 {
			t.Errorf("%v", a.Stalled)
		}
	})
}
