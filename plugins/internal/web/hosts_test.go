package web

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestSnoozesAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hs := newHosts(2, time.Second)
		seat, err := hs.Enter(t.Context(), "a.test:80")
		if err != nil {
			t.Fatal(err)
		}
		if err := seat.Turn(t.Context()); err != nil {
			t.Fatal(err)
		}
		seat.CloseFor(time.Minute)
		seat.Leave()
		last := time.Minute - time.Second
		for i := range 1000 {
			_, err := hs.Enter(t.Context(), "a.test:80")
			b, ok := errors.AsType[*Busy](err)
			switch {
			case !ok:
				t.Fatalf("enter %d: %v", i, err)
			case i < 60 && b.Wait != last+time.Second:
				t.Fatalf("snooze %d is for %s, the one before for %s: want a second more", i, b.Wait, last)
			case b.Wait > MaxSnooze+time.Minute:
				t.Fatalf("snooze %d is for %s", i, b.Wait)
			}
			last = b.Wait
		}
	})
}

func TestIdleHostsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hs := newHosts(2, time.Second)
		held, err := hs.Enter(t.Context(), "held.test:80")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20_000 {
			seat, err := hs.Enter(t.Context(), fmt.Sprintf("%d.test:80", i))
			if err != nil {
				t.Fatal(err)
			}
			seat.Leave()
			time.Sleep(time.Millisecond)
		}
		if n := len(hs.byName); n > 5000 {
			t.Errorf("%d hosts are remembered", n)
		}
		if hs.byName["held.test:80"] != held.host {
			t.Error("a host with a check under way was forgotten")
		}
		held.Leave()
	})
}

// Waiting for a place ends with the context's cause, and the place goes to somebody else.
func TestWaitingIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hs := newHosts(1, 0)
		first, err := hs.Enter(t.Context(), "a.test:80")
		if err != nil {
			t.Fatal(err)
		}
		why := errors.New("not wanted any more")
		ctx, cancel := context.WithCancelCause(t.Context())
		got := make(chan error)
		go func() {
			_, err := hs.Enter(ctx, "a.test:80")
			got <- err
		}()
		synctest.Wait()
		cancel(why)
		if err := <-got; !errors.Is(err, why) {
			t.Errorf("got %v, want the cause", err)
		}
		first.Leave()
		next, err := hs.Enter(t.Context(), "a.test:80")
		if err != nil {
			t.Fatal(err)
		}
		next.Leave()
	})
}

// A few links that hang do not put off the many others of their host by more than they hang.
func TestHangingLinksAmongMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hs := newHosts(2, 0)
		took := make(chan time.Duration)
		began := time.Now()
		const links = 500
		for i := range links {
			go func() {
				hold := 5 * time.Millisecond
				if i < 2 {
					hold = 3 * time.Second
				}
				for {
					seat, err := hs.Enter(t.Context(), "a.test:80")
					if b, ok := errors.AsType[*Busy](err); ok {
						time.Sleep(b.Wait)
						continue
					}
					time.Sleep(hold)
					seat.Leave()
					took <- time.Since(began)
					return
				}
			}()
		}
		var last time.Duration
		for range links {
			last = max(last, <-took)
		}
		// 3 s of hanging, then 2 at a time of 5 ms: 1.3 s.
		if last > time.Minute { // waits are drawn: rarely 20 s
			t.Errorf("%d links took %s", links, last)
		}
	})
}
