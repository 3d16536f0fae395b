package lending_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledgerd/ledger/stats"
)

// TestTallies: ends are tallied by agent, with the times from due to claim and from claim to end.
func TestTallies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := waitingRig(t)
		r.add("k", "a", "b")
		<-time.After(time.Second)
		held := r.claim("w", 2)
		<-time.After(100 * time.Millisecond)
		if a := r.finish(held[0].Token); !a[0].Recorded {
			t.Fatalf("%+v", a)
		}
		_, err := r.Release(t.Context(), anyone, []string{held[1].Token})
		r.ok(err)
		<-time.After(5 * time.Second)
		synctest.Wait()
		got, err := r.store.Tallies(t.Context(), time.Time{})
		r.ok(err)
		var sum stats.Minute
		for _, m := range got {
			sum.Add(m)
		}
		want := stats.Minute{Done: 1, Other: 1, Worked: 100 * time.Millisecond, Waits: stats.Latencies{8: 1},
			Works: stats.Latencies{5: 1}}
		if sum != want {
			t.Errorf("tallied %+v, want %+v", sum, want)
		}
	})
}
