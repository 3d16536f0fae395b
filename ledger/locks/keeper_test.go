package locks

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
)

// flaky is a store whose next calls fail: before or after they take effect, or by hanging.
type flaky struct {
	ledger.LockStore
	fails atomic.Pointer[failure] // nil: calls succeed
}

type failure func(ctx context.Context, call func() error) error

// fail makes calls fail from now on; nil ends that.
func (f *flaky) fail(how failure) {
	if how == nil {
		f.fails.Store(nil)
		return
	}
	f.fails.Store(&how)
}

func (f *flaky) Update(ctx context.Context, conn ledger.Conn, fn func(ledger.Tx) error) error {
	call := func() error { return f.LockStore.Update(ctx, conn, fn) }
	if how := f.fails.Load(); how != nil {
		return (*how)(ctx, call)
	}
	return call()
}

// bubble runs a test with a fake clock, on a store in memory that has the same clock.
func bubble(t *testing.T, test func(t *testing.T, m *Manager, store *flaky)) {
	synctest.Test(t, func(t *testing.T) {
		l := ledger.New(memory.New(memory.Options{}), ledger.Options{})
		store := &flaky{LockStore: l.LockStore()}
		test(t, &Manager{store}, store)
	})
}

func hold(t *testing.T, m *Manager, o Options) (context.Context, *Lock) {
	t.Helper()
	held, l, err := m.Acquire(t.Context(), "l", o)
	must.OK(t, err)
	return held, l
}

func giveBack(t *testing.T, m *Manager, l *Lock) {
	t.Helper()
	must.OK(t, m.Release(t.Context(), l))
}

// until returns when the lock expires, as other callers see it; zero if it is free.
func until(t *testing.T, m *Manager) time.Time {
	t.Helper()
	held, err := m.Held(t.Context())
	must.OK(t, err)
	if len(held) == 0 {
		return time.Time{}
	}
	return held[0].Until
}

func TestRenewedAtAThird(t *testing.T) {
	bubble(t, func(t *testing.T, m *Manager, _ *flaky) {
		held, l := hold(t, m, Options{TTL: 30 * time.Second})
		start := time.Now()
		for want := range 20 {
			if got := until(t, m); !got.Equal(start.Add(time.Duration(want)*10*time.Second + 30*time.Second)) {
				t.Fatalf("after %d renewals it ends at %v", want, got.Sub(start))
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
		}
		if held.Err() != nil {
			t.Fatal(context.Cause(held))
		}
		giveBack(t, m, l)
		if !until(t, m).IsZero() || !errors.Is(held.Err(), context.Canceled) || errors.Is(context.Cause(held), ErrLost) {
			t.Fatal(until(t, m), context.Cause(held))
		}
	})
}

// TestRenewedUntilRelease: the end of the caller's context does not end the renewals, since its work may still run.
func TestRenewedUntilRelease(t *testing.T) {
	bubble(t, func(t *testing.T, m *Manager, _ *flaky) {
		ctx, cancel := context.WithCancel(t.Context())
		held, l, err := m.Acquire(ctx, "l", Options{})
		must.OK(t, err)
		cancel()
		time.Sleep(time.Hour)
		if until(t, m).IsZero() || held.Err() == nil {
			t.Fatal("it is not held any more")
		}
		giveBack(t, m, l)
	})
}

// TestLostWhenNotRenewed: while the database is unavailable the holder continues, but its context ends before another
// caller can get the lock.
func TestLostWhenNotRenewed(t *testing.T) {
	away := func(context.Context, func() error) error { return ledger.ErrUnavailable }
	hangs := func(ctx context.Context, _ func() error) error { <-ctx.Done(); return ctx.Err() }
	hangsOn := func(context.Context, func() error) error { time.Sleep(time.Hour); return ledger.ErrUnavailable }
	for name, fail := range map[string]func(context.Context, func() error) error{
		"away": away, "hangs": hangs, "hangs on": hangsOn} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, m *Manager, store *flaky) {
				held, l := hold(t, m, Options{TTL: 30 * time.Second})
				time.Sleep(15 * time.Second) // it was renewed at 10 s
				end := until(t, m)
				store.fail(fail)
				<-held.Done()
				if left := time.Until(end); left != 3*time.Second || context.Cause(held) != ErrLost {
					t.Fatalf("%v before its end: %v", left, context.Cause(held))
				}
				time.Sleep(2 * time.Hour)
				store.fail(nil)
				other, l2 := hold(t, m, Options{}) // the lock is free for others
				giveBack(t, m, l)
				if other.Err() != nil || until(t, m).IsZero() {
					t.Fatal("releasing a lost lock took it from its next holder")
				}
				giveBack(t, m, l2)
			})
		})
	}
}

// TestRenewedAgain: a failed renewal is soon repeated. One that succeeds in time is enough.
func TestRenewedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, m *Manager, store *flaky) {
		held, l := hold(t, m, Options{TTL: 30 * time.Second})
		store.fail(func(context.Context, func() error) error { return ledger.ErrUnavailable })
		time.Sleep(24 * time.Second)
		store.fail(nil)
		time.Sleep(time.Minute)
		if held.Err() != nil || until(t, m).IsZero() {
			t.Fatal(context.Cause(held))
		}
		giveBack(t, m, l)
	})
}

// TestForceReleased: after a ForceRelease the holder's next renewal ends its context. Do returns ErrLost even if its
// function ignored that.
func TestForceReleased(t *testing.T) {
	bubble(t, func(t *testing.T, m *Manager, _ *flaky) {
		err := m.Do(t.Context(), "l", Options{TTL: 30 * time.Second}, func(ctx context.Context, l *Lock) error {
			start := time.Now()
			if from, err := m.ForceRelease(t.Context(), "op", "l"); err != nil || from == nil {
				t.Fatal(from, err)
			}
			<-ctx.Done()
			if took := time.Since(start); took != 10*time.Second || context.Cause(ctx) != ErrLost {
				t.Errorf("after %v: %v", took, context.Cause(ctx))
			}
			return nil
		})
		if err != ErrLost {
			t.Errorf("got %v", err)
		}
		cause := errors.New("cause")
		err = m.Do(t.Context(), "l", Options{}, func(ctx context.Context, l *Lock) error {
			must.Do(t)(m.ForceRelease(t.Context(), "op", "l"))
			<-ctx.Done()
			return cause
		})
		if !errors.Is(err, ErrLost) || !errors.Is(err, cause) {
			t.Errorf("got %v", err)
		}
	})
}

// TestUnknownOutcomes: calls with an unknown outcome are repeated, and leave no lock behind.
func TestUnknownOutcomes(t *testing.T) {
	lands := func(_ context.Context, call func() error) error {
		return errors.Join(ledger.ErrUnavailable, call())
	}
	fails := func(context.Context, func() error) error { return ledger.ErrUnavailable }
	for name, fail := range map[string]func(context.Context, func() error) error{"landed": lands, "failed": fails} {
		for n := range 2 * (tries + 1) { // each number of failures, without and with AtLeast
			o := Options{Holder: "a", AtLeast: time.Duration(n%2) * time.Minute}
			times := n/2 + 1
			bubble(t, func(t *testing.T, m *Manager, store *flaky) {
				left := times
				once := func(ctx context.Context, call func() error) error {
					if left--; left >= 0 {
						return fail(ctx, call)
					}
					return call()
				}
				store.fail(once)
				held, l, err := m.Acquire(t.Context(), "l", o)
				switch {
				case err == nil:
					if until(t, m).IsZero() || held.Err() != nil {
						t.Fatalf("%s %d times: not held", name, times)
					}
					left = min(times, tries-1)
					store.fail(once)
					giveBack(t, m, l)
				case !errors.Is(err, ledger.ErrUnavailable):
					t.Fatalf("%s %d times: %v", name, times, err)
				}
				store.fail(nil)
				if left := until(t, m); left.IsZero() == (err == nil && o.AtLeast > 0) {
					t.Errorf("%s %d times: until %v after %v", name, times, left, err)
				}
			})
		}
	}
}

func TestWait(t *testing.T) {
	bubble(t, func(t *testing.T, m *Manager, _ *flaky) {
		_, l := hold(t, m, Options{Holder: "a"})
		start := time.Now()
		_, _, err := m.Acquire(t.Context(), "l", Options{Wait: time.Minute})
		if held := (*HeldError)(nil); !errors.As(err, &held) || held.Holder != "a" || time.Since(start) != time.Minute {
			t.Fatalf("after %v: %v", time.Since(start), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start = time.Now()
		if _, _, err := m.Acquire(ctx, "l", Options{Wait: time.Minute}); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(start) != time.Second {
			t.Fatalf("after %v: %v", time.Since(start), err)
		}
		time.AfterFunc(10*time.Second, func() { giveBack(t, m, l) })
		start = time.Now()
		_, l2 := hold(t, m, Options{Wait: time.Minute})
		if took := time.Since(start) - 10*time.Second; took < 0 || took > 2*lastLook {
			t.Fatalf("it was acquired %v after it was free", took)
		}
		giveBack(t, m, l2)
	})
}

// TestHeldByACommit: Acquire waits for an expired holder whose transaction is committing, but not for ever. Only if
// the lock is known to be held does this wait end as a HeldError.
func TestHeldByACommit(t *testing.T) {
	bubble(t, func(t *testing.T, m *Manager, store *flaky) {
		_, l := hold(t, m, Options{Holder: "a", TTL: time.Second})
		store.fail(func(ctx context.Context, _ func() error) error { <-ctx.Done(); return ctx.Err() })
		time.Sleep(time.Second)
		start := time.Now()
		_, _, err := m.Acquire(t.Context(), "l", Options{})
		if held := (*HeldError)(nil); !errors.As(err, &held) || held.Holder != "a" ||
			time.Since(start) != askTime+forgetTime {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		if _, _, err = m.Acquire(t.Context(), "another", Options{}); !errors.Is(err, ledger.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		store.fail(nil)
		giveBack(t, m, l)
	})
}

// TestDoPanics: a panic in Do releases the lock.
func TestDoPanics(t *testing.T) {
	bubble(t, func(t *testing.T, m *Manager, _ *flaky) {
		func() {
			defer func() {
				if p := recover(); p != "oops" {
					t.Errorf("recovered %v", p)
				}
			}()
			_ = m.Do(t.Context(), "l", Options{}, func(context.Context, *Lock) error { panic("oops") })
		}()
		if !until(t, m).IsZero() {
			t.Error("it is still held")
		}
	})
}
