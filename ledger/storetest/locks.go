package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/locks"
)

// lockTTL is so long that no lock is renewed during a test: only the clock of the test counts.
const lockTTL = 6 * time.Hour

func (h *harness) locks() *locks.Manager { return locks.New(h.l) }

// acquire takes a lock that must be free.
func (h *harness) acquire(name string, o locks.Options) *locks.Lock {
	h.t.Helper()
	o.TTL = lockTTL
	_, l, err := h.locks().Acquire(h.ctx, name, o)
	h.ok(err)
	return h.tidy(l)
}

// tidy releases a lock when the test ends.
func (h *harness) tidy(l *locks.Lock) *locks.Lock {
	h.t.Cleanup(func() { _ = h.locks().Release(context.WithoutCancel(h.ctx), l) })
	return l
}

// refused fails unless the lock is held, and returns its holder.
func (h *harness) refused(name string) *locks.HeldError {
	h.t.Helper()
	_, _, err := h.locks().Acquire(h.ctx, name, locks.Options{Holder: "refused", TTL: lockTTL})
	held := new(locks.HeldError)
	if !errors.As(err, &held) {
		h.t.Fatalf("got %v, want a HeldError", err)
	}
	return held
}

// check calls Manager.Check in a transaction of its own.
func (h *harness) check(l *locks.Lock) error { return h.locks().Check(h.ctx, nil, l) }

func locksExclude(t *testing.T, h *harness) {
	a := h.acquire("nightly mail", locks.Options{Holder: "ann"})
	h.clock.advance(time.Minute)
	want := &locks.HeldError{Name: "nightly mail", Holder: "ann", Fence: a.Fence, Since: start, Until: start.Add(lockTTL)}
	equal(t, "refusal", h.refused("nightly mail"), want)
	equal(t, "its text", want.Error(),
		`lock "nightly mail" is held by ann since 2026-11-20T10:00:00Z, until 2026-11-20T16:00:00Z unless renewed`)

	other := h.acquire("é%_\n", locks.Options{Holder: strings.Repeat("x", bounds.MaxAgent)})
	held, err := h.locks().Held(h.ctx)
	h.ok(err)
	if len(held) != 2 || held[0].Name != "nightly mail" || held[1].Name != "é%_\n" || held[1].Fence != other.Fence ||
		!held[1].Since.Equal(start.Add(time.Minute)) {
		t.Fatalf("held: %+v", held)
	}
	h.ok(h.check(a))
	h.ok(h.locks().Release(h.ctx, a))
	h.is(h.check(a), locks.ErrLost)
	h.ok(h.locks().Release(h.ctx, a))

	b := h.acquire("nightly mail", locks.Options{})
	if !(a.Fence >= 1 && a.Fence < other.Fence && other.Fence < b.Fence) {
		t.Fatalf("fences %d, %d, %d", a.Fence, other.Fence, b.Fence)
	}
	h.ok(h.locks().Release(h.ctx, a)) // another holder has it now
	h.ok(h.check(b))
	if by := h.refused("nightly mail").Holder; !strings.Contains(by, "/") {
		t.Fatalf("holder %q is not host/pid", by)
	}
}

func locksExpire(t *testing.T, h *harness) {
	a := h.acquire("l", locks.Options{Holder: "a"})
	h.clock.advance(lockTTL - time.Microsecond)
	h.refused("l")
	h.ok(h.check(a))
	h.clock.advance(time.Microsecond)
	h.is(h.check(a), locks.ErrLost) // expired is lost, also if no other holder took it
	held, err := h.locks().Held(h.ctx)
	h.ok(err)
	equal(t, "held", len(held), 0)

	b := h.acquire("l", locks.Options{Holder: "b"})
	if b.Fence <= a.Fence {
		t.Fatalf("fence %d after %d", b.Fence, a.Fence)
	}
	h.is(h.check(a), locks.ErrLost)
	h.ok(h.locks().Release(h.ctx, a))
	equal(t, "holder", h.refused("l").Holder, "b")
	h.clock.advance(-time.Hour) // the clock is set back: the lock only lasts longer
	h.ok(h.check(b))
	h.refused("l")
	h.ok(h.locks().Release(h.ctx, b))
	h.acquire("l", locks.Options{})
}

func locksAtLeast(t *testing.T, h *harness) {
	a := h.acquire("l", locks.Options{Holder: "a", AtLeast: 20 * time.Hour})
	h.clock.advance(time.Minute)
	h.ok(h.locks().Release(h.ctx, a))
	h.is(h.check(a), locks.ErrLost)
	h.ok(h.locks().Release(h.ctx, a))
	equal(t, "refusal", h.refused("l"), &locks.HeldError{Name: "l", Holder: "a", Fence: a.Fence, Since: start,
		Until: start.Add(20 * time.Hour)})
	h.clock.advance(20*time.Hour - time.Minute)
	b := h.acquire("l", locks.Options{AtLeast: time.Hour})
	h.clock.advance(time.Hour)
	h.ok(h.locks().Release(h.ctx, b)) // AtLeast is over
	c := h.acquire("l", locks.Options{AtLeast: 20 * time.Hour})
	h.clock.advance(lockTTL) // AtLeast does not outlast the expiry
	h.is(h.check(c), locks.ErrLost)
	h.acquire("l", locks.Options{})
}

func locksForceRelease(t *testing.T, h *harness) {
	a := h.acquire("l", locks.Options{Holder: "a", AtLeast: time.Hour})
	from, err := h.locks().ForceRelease(h.ctx, "op", "l")
	h.ok(err)
	equal(t, "taken from", from, &locks.HeldError{Name: "l", Holder: "a", Fence: a.Fence, Since: start,
		Until: start.Add(lockTTL)})
	h.is(h.check(a), locks.ErrLost)
	h.acquire("l", locks.Options{Holder: "b"})
	h.clock.advance(lockTTL)
	for _, name := range []string{"l", "none"} {
		if from, err = h.locks().ForceRelease(h.ctx, "op", name); from != nil || err != nil {
			t.Fatal(from, err)
		}
	}
}

func locksLimits(t *testing.T, h *harness) {
	for _, c := range []struct {
		field, name string
		o           locks.Options
	}{
		{"name", "", locks.Options{}},
		{"name", strings.Repeat("x", bounds.MaxLockName+1), locks.Options{}},
		{"name", "a\x00", locks.Options{}},
		{"name", "\xff", locks.Options{}},
		{"holder", "l", locks.Options{Holder: strings.Repeat("x", bounds.MaxAgent+1)}},
		{"ttl", "l", locks.Options{TTL: time.Second - 1}},
		{"ttl", "l", locks.Options{TTL: 24*time.Hour + time.Microsecond}},
		{"at_least", "l", locks.Options{AtLeast: -1000}},
		{"at_least", "l", locks.Options{AtLeast: 25 * time.Hour}},
		{"wait", "l", locks.Options{Wait: -1}},
	} {
		_, _, err := h.locks().Acquire(h.ctx, c.name, c.o)
		bad := new(ledger.InvalidError)
		if !errors.As(err, &bad) || bad.Field != c.field {
			t.Errorf("%q %+v: %v", c.name, c.o, err)
		}
	}
	_, err := h.locks().ForceRelease(h.ctx, "", "l")
	h.is(err, ledger.ErrInvalid)
	_, l, err := h.locks().Acquire(h.ctx, strings.Repeat("x", bounds.MaxLockName), locks.Options{TTL: 24 * time.Hour,
		AtLeast: 24 * time.Hour})
	h.ok(err)
	h.tidy(l)
}

// concurrentLocks: many holders contend for few locks. Each lock guards a slice that would race without it.
func concurrentLocks(t *testing.T, open Open) {
	m := locks.New(ledger.New(open(t, nil), ledger.Options{}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const names, holders, turns = 3, 6, 12
	var inside [names]atomic.Int32
	fences := make([][]int64, names)
	var wg sync.WaitGroup
	for h := range holders {
		wg.Go(func() {
			for turn := range turns {
				n := (h + turn) % names
				err := m.Do(ctx, fmt.Sprint(n), locks.Options{Holder: fmt.Sprint(h), Wait: time.Minute},
					func(_ context.Context, l *locks.Lock) error {
						if inside[n].Add(1) != 1 {
							t.Errorf("two hold lock %d", n)
						}
						fences[n] = append(fences[n], l.Fence)
						inside[n].Add(-1)
						return nil
					})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	all := slices.Concat(fences...)
	slices.Sort(all)
	if n := len(slices.Compact(all)); n != holders*turns {
		t.Errorf("%d fences for %d holders", n, holders*turns)
	}
	for n := range fences {
		if !slices.IsSorted(fences[n]) {
			t.Errorf("fences of lock %d: %v", n, fences[n])
		}
	}
	if held, err := m.Held(ctx); err != nil || len(held) > 0 {
		t.Errorf("left: %v, %v", held, err)
	}
}
