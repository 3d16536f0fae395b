package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
)

// Checks of a busy host are snoozed in the order in which they came: by the host's pace as far as MaxSnooze, and
// close together beyond.
func TestSnoozesAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hs := newHosts(2, time.Second)
		seat := enter(t, hs)
		defer seat.Leave()
		seat.host.next = time.Now().Add(10 * time.Second)
		last := 9 * time.Second
		for i := range 1000 {
			_, err := hs.Enter(t.Context(), "a.test:80")
			b, ok := errors.AsType[*Busy](err)
			want := last + time.Second
			if want > MaxSnooze+10*time.Second {
				want = last + closeTurns
			}
			if !ok || b.Wait != want {
				t.Fatalf("enter %d: %v: %+v, want %s", i, err, b, want)
			}
			last = b.Wait
		}
	})
}

func enter(t *testing.T, hs *hosts) *Seat {
	t.Helper()
	seat, err := hs.Enter(t.Context(), "a.test:80")
	must.OK(t, err)
	return seat
}

func TestIdleHostsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hs := newHosts(2, time.Second)
		held, err := hs.Enter(t.Context(), "held.test:80")
		must.OK(t, err)
		for i := range 20_000 {
			seat, err := hs.Enter(t.Context(), fmt.Sprintf("%d.test:80", i))
			must.OK(t, err)
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

// Waiting for a place ends with the context's cause, and another check gets the place.
func TestWaitingIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hs := newHosts(1, 0)
		first, err := hs.Enter(t.Context(), "a.test:80")
		must.OK(t, err)
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
		must.OK(t, err)
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

// Many checks at once: no more than three hold a place, and the interval between two requests is kept. Together they
// take little longer than the host needs.
func TestLimitAndInterval(t *testing.T) {
	const checks, hold = 60, 50 * time.Millisecond
	for interval, least := range map[time.Duration]time.Duration{
		0:                      2 * checks / 3 * hold,
		700 * time.Millisecond: 2 * checks * 700 * time.Millisecond,
	} {
		synctest.Test(t, func(t *testing.T) {
			hs := newHosts(3, interval)
			var all sync.WaitGroup
			var mu sync.Mutex
			var starts []time.Time
			now, most, began := 0, 0, time.Now()
			for range checks {
				all.Go(func() {
					seat, err := hs.Enter(t.Context(), "a.test:80")
					for b, busy := errors.AsType[*Busy](err); busy; b, busy = errors.AsType[*Busy](err) {
						time.Sleep(b.Wait)
						seat, err = hs.Enter(t.Context(), "a.test:80")
					}
					mu.Lock()
					now++
					most = max(most, now)
					mu.Unlock()
					for range 2 { // HEAD, then GET
						err = errors.Join(err, seat.Turn(t.Context()))
						mu.Lock()
						starts = append(starts, time.Now())
						mu.Unlock()
						time.Sleep(hold)
					}
					mu.Lock()
					now--
					mu.Unlock()
					seat.Leave()
					if err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if most > 3 || interval == 0 && most < 3 || len(starts) != 2*checks {
				t.Errorf("%s: %d checks at once and %d requests, want 3 and %d", interval, most, len(starts), 2*checks)
			}
			for i := 1; i < len(starts); i++ {
				if gap := starts[i].Sub(starts[i-1]); gap < interval {
					t.Errorf("request %d came %s after the one before, want %s", i, gap, interval)
				}
			}
			if took := time.Since(began); took > 2*least+Patience {
				t.Errorf("%s: took %s, the host needs %s", interval, took, least)
			}
		})
	}
}

// A host rests for a second after each refusal, for those who ask for a turn after it. An answer that is no refusal,
// and another host, cause no rest.
func TestRestAfterRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hs := newHosts(2, 0)
		seat, other := enter(t, hs), enter(t, hs)
		away, err := hs.Enter(t.Context(), "b.test:80")
		must.OK(t, err)
		for _, tt := range []struct {
			status     int
			retryAfter string
			rest       time.Duration
		}{{200, "", 0}, {429, "7200", Patience}, {503, "", 0}, {503, "10", Patience}, {404, "2", 0}, {429, "", Patience}} {
			must.OK(t, seat.Turn(t.Context()))
			seat.Answered(answer(tt.status, tt.retryAfter))
			for s, rest := range map[*Seat]time.Duration{away: 0, other: tt.rest} {
				began := time.Now()
				must.OK(t, s.Turn(t.Context()))
				if took := time.Since(began); took != rest {
					t.Errorf("after %d with Retry-After %q: %s waited %s, want %s", tt.status, tt.retryAfter, s.name, took, rest)
				}
			}
		}
		must.OK(t, seat.Turn(t.Context()))
		seat.Answered(answer(429, ""))
		time.Sleep(Patience / 2)
		other.Answered(answer(429, "")) // the rest begins again
		began := time.Now()
		other.Leave()
		last := enter(t, hs) // in place, because it does not wait longer than Patience
		must.OK(t, last.Turn(t.Context()))
		if took := time.Since(began); took != Patience {
			t.Errorf("waited %s after the second refusal", took)
		}
	})
}

func answer(status int, retryAfter string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {retryAfter}}}
}
