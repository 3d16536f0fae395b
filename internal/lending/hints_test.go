package lending_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledgerd/internal/lending"
)

// TestHintsOnDemand: the ledger's hints are received while claims wait, and a minute longer. On SQLite they cost time
// whenever another process writes.
func TestHintsOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := waitingRig(t)
		watching := func(want int32) {
			t.Helper()
			synctest.Wait()
			if n := r.store.watching.Load(); n != want {
				t.Errorf("%d subscriptions, want %d", n, want)
			}
		}
		<-time.After(time.Hour)
		watching(0)
		p := r.poll("one", "w")
		watching(1)
		<-p.over
		watching(1)
		<-time.After(2 * time.Minute)
		watching(0)
		p = r.poll("one", "w")
		r.add("k", "a")
		if <-p.over; len(p.Leases) != 1 || p.after != 0 {
			t.Errorf("got %+v, %v after %s", p.Leases, p.err, p.after)
		}
		watching(1)
	})
}

// TestHintsAfterASlowStart: a claim that begins to wait while the lender is held up by the ledger gets hints, too.
func TestHintsAfterASlowStart(t *testing.T) {
	for range 20 { // the lender takes the claim or a tick first, at random
		synctest.Test(t, func(t *testing.T) {
			r := waitingRig(t, func(d *lending.Lender) { d.Quiet = true })
			r.store.slow.Store(int64(time.Minute)) // the next tally takes long: ticks and the claim are due then
			<-time.After(15 * time.Second)
			p := r.poll("one", "w")
			<-p.over
			r.store.slow.Store(0)
			p = r.poll("one", "w")
			<-time.After(time.Minute)
			synctest.Wait()
			if n := r.store.watching.Load(); n != 1 {
				t.Fatalf("%d subscriptions while claims wait", n)
			}
			<-p.over
		})
	}
}
