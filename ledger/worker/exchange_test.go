package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// slow is a handler that takes ten seconds.
var slow = takes(10 * time.Second)

func one(c *Config) { c.Concurrency = 1 }

// If one item is worked at a time, its end and the claim of the next one are one call.
func TestEndsWithClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.addMany(5)
		rep := r.drain(slow, one)
		if rep.Outcomes[ledger.OutcomeDone] != 5 {
			t.Errorf("report %+v", rep)
		}
		if n := r.store.calls["exchange"]; n != 5 { // the last one claims nothing
			t.Errorf("%d calls that end and claim", n)
		}
		if n := r.store.calls["complete"]; n != 5 {
			t.Errorf("%d calls that end", n)
		}
	})
}

// If a call that ends and claims fails, the lease is ended in a call of its own, and the next item is claimed later.
func TestEndsWithClaimsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ids := r.addMany(3)
		failures := 0
		r.store.failing(func(call string) error {
			if call == "exchange" {
				failures++
				return ledger.ErrUnavailable
			}
			return nil
		})
		rep := r.drain(slow, one)
		if rep.Outcomes[ledger.OutcomeDone] != 3 || failures != 3 {
			t.Errorf("%d failures, report %+v", failures, rep)
		}
		for _, id := range ids {
			same(t, "outcomes", []ledger.Outcome{ledger.OutcomeDone}, r.outcomes(id))
		}
	})
}

// An end waits for a row that another process has locked. Claims do not wait for it.
func TestClaimsDoNotWaitForEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.addMany(3)
		r.store.Store = &locked{Store: r.store.Store, until: time.Now().Add(time.Minute)}
		began := time.Now()
		var starts []time.Duration
		rep := r.drain(Func(func(ctx context.Context, ls *ledger.Lease) ledger.Result {
			starts = append(starts, time.Since(began).Truncate(time.Second))
			return slow(ctx, ls)
		}), one)
		if rep.Outcomes[ledger.OutcomeDone] != 3 {
			t.Errorf("report %+v", rep)
		}
		same(t, "began", []time.Duration{0, 11 * time.Second, 22 * time.Second}, starts)
	})
}

// locked makes calls that end items wait.
type locked struct {
	ledger.Store
	until time.Time
}

func (s *locked) wait(ctx context.Context) error {
	if d := time.Until(s.until); d > 0 && !sleep(ctx, d) {
		return ctx.Err()
	}
	return nil
}

func (s *locked) Complete(ctx context.Context, conn ledger.Conn, c []ledger.Completion) ([]int64, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Store.Complete(ctx, conn, c)
}

func (s *locked) CompleteAndClaim(ctx context.Context, c []ledger.Completion, g ledger.Grant) ([]int64, ledger.Claimed,
	error) {
	if err := s.wait(ctx); err != nil {
		return nil, ledger.Claimed{}, err
	}
	return s.Store.CompleteAndClaim(ctx, c, g)
}

// After a claim that found less than it asked for, the next claim only reads first; after a hint it does not.
func TestLooksFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		stop := r.run(r.worker(Func(done)))
		elapse(10 * time.Second)
		r.store.grants() // of the first claims
		elapse(10 * time.Second)
		for _, g := range r.store.grants() {
			if !g.LookFirst {
				t.Error("an idle worker claims without a look")
			}
		}
		r.addMany(1)
		synctest.Wait()
		var looks []bool
		for _, g := range r.store.grants() {
			looks = append(looks, g.LookFirst)
		}
		same(t, "looks first", []bool{false, true}, looks)
		stop()
	})
}
