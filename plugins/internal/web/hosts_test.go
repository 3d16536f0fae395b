package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
		for range 10 { // each is asked again at the end of the gap
			seat.Answered(answer(429, ""))
			time.Sleep(maxGap)
			if err := seat.Turn(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		seat.Leave()
		last := time.Duration(0)
		for i := range 1000 {
			_, err := hs.Enter(t.Context(), "a.test:80")
			b, ok := errors.AsType[*Busy](err)
			switch {
			case !ok:
				t.Fatalf("enter %d: %v", i, err)
			case i > 0 && i < 3 && b.Wait != min(last+maxGap, MaxSnooze+maxGap):
				t.Fatalf("snooze %d is for %s, the one before for %s: want %s more", i, b.Wait, last, maxGap)
			case b.Wait > MaxSnooze+maxGap:
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

func answer(status int, retryAfter string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {retryAfter}}}
}

// A host that refuses is asked half as often each time, down to a bound, and as often as before once it
// answers again.
func TestPaceAfterRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hs := newHosts(2, 0)
		seat, err := hs.Enter(t.Context(), "a.test:80")
		if err != nil {
			t.Fatal(err)
		}
		defer seat.Leave()
		ask := func(status int) (waited time.Duration, patient bool) {
			before := time.Now()
			if err := seat.Turn(t.Context()); err != nil {
				t.Fatal(err)
			}
			waited = time.Since(before)
			time.Sleep(time.Millisecond)
			return waited, seat.Answered(answer(status, "7200"))
		}
		var gaps []time.Duration
		for range 8 {
			waited, patient := ask(429)
			gaps = append(gaps, waited)
			if want := len(gaps) < 7; patient != want {
				t.Errorf("refusal %d: patient is %v, want %v", len(gaps), patient, want)
			}
		}
		want := []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, maxGap, maxGap}
		for i, gap := range gaps {
			if (gap - want[i]).Abs() > 2*time.Millisecond {
				t.Errorf("request %d waited %s, want %s", i, gap, want[i])
			}
		}
		began := time.Now()
		for range 80 {
			ask(404)
		}
		if waited, _ := ask(200); waited > 0 || time.Since(began) > 12*maxGap {
			t.Errorf("the host is still waited for, %s; recovering took %s", waited, time.Since(began))
		}
	})
}

// Requests that were under way when the host refused say the same once more, and slow it down once.
func TestOneVolleyCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hs := newHosts(10, 0)
		var seats []*Seat
		for range 10 {
			seat, err := hs.Enter(t.Context(), "a.test:80")
			if err != nil {
				t.Fatal(err)
			}
			defer seat.Leave()
			if err := seat.Turn(t.Context()); err != nil {
				t.Fatal(err)
			}
			seats = append(seats, seat)
		}
		time.Sleep(time.Millisecond)
		for _, seat := range seats {
			seat.Answered(answer(503, "10"))
		}
		if gap := seats[0].host.gap; gap != minGap {
			t.Errorf("after one volley the gap is %s, want %s", gap, minGap)
		}
		if seats[0].Answered(answer(503, "")); seats[0].host.gap >= minGap {
			t.Error("a 503 without Retry-After is taken for a refusal")
		}
	})
}
