package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
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

// request asks for a path of a host that takes 100 ms for an answer, and returns how long it had to
// wait.
func request(t *testing.T, seat *Seat, path string, status int, retryAfter string) (waited time.Duration) {
	t.Helper()
	before := time.Now()
	must.OK(t, seat.Turn(t.Context()))
	waited = time.Since(before)
	time.Sleep(100 * time.Millisecond)
	seat.Answered(answer(path, status, retryAfter))
	return waited
}

// A host that refuses is asked half as often each time, down to a bound, and step by step as often as before once
// it answers again.
func TestPaceAfterRefusals(t *testing.T) {
	for retryAfter, bound := range map[string]time.Duration{"2": 2 * time.Second, "7200": maxGap, "": maxGap} {
		synctest.Test(t, func(t *testing.T) {
			hs := newHosts(1, 0)
			seat := enter(t, hs)
			defer seat.Leave()
			for i := range 10 { // 10 links in 1 s: the host's full pace
				if waited := request(t, seat, fmt.Sprint(i), 200, ""); waited > 0 {
					t.Fatalf("request %d waited %s", i, waited)
				}
			}
			for i := range 20 {
				before := seat.host.gap
				request(t, seat, fmt.Sprint("refused", i), 429, retryAfter)
				if i == 0 {
					before = hs.fullPace(seat.host)
				}
				if want := min(2*before, bound); seat.host.gap != want {
					t.Fatalf("after refusal %d the gap is %s, want %s", i, seat.host.gap, want)
				}
			}
			began := time.Now()
			for range 80 {
				request(t, seat, "good", 404, "")
			}
			if took := time.Since(began); seat.host.gap > 0 || took > 3*bound+30*time.Second {
				t.Errorf("Retry-After %q: the gap is still %s after %s", retryAfter, seat.host.gap, took)
			}
		})
	}
}

// One refusal among many good answers costs a few of them their pace, and no more.
func TestOneRefusalAmongMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hs := newHosts(1, 0)
		seat := enter(t, hs)
		defer seat.Leave()
		began := time.Now()
		for i := range 399 {
			status := 200
			if i == 100 {
				status = 429
			}
			request(t, seat, fmt.Sprint(i), status, "2")
		}
		if took := time.Since(began); took > 42*time.Second {
			t.Errorf("399 requests took %s, of 39.9s without the refusal", took)
		}
	})
}

// A URL that is refused again and again while others are answered well does not slow its host.
func TestOneURLThatAlwaysRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hs := newHosts(1, 0)
		seat := enter(t, hs)
		defer seat.Leave()
		for i := range 6 {
			request(t, seat, "refused", 429, "2")
			if slowed := seat.host.gap > 0; slowed != (i == 0) {
				t.Errorf("refusal %d: slowed is %v", i+1, slowed)
			}
			for j := range 20 {
				request(t, seat, fmt.Sprint(j), 200, "")
			}
		}
		request(t, seat, "refused", 200, "")
		if request(t, seat, "refused", 429, "2"); seat.host.gap == 0 {
			t.Error("after a good answer a refusal tells nothing about the host")
		}
	})
}

// Requests that were under way when the host refused have the same answer once more, and slow it
// down once.
func TestOneVolleyCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hs := newHosts(10, 0)
		var seats []*Seat
		for range 10 {
			seat := enter(t, hs)
			defer seat.Leave()
			must.OK(t, seat.Turn(t.Context()))
			seats = append(seats, seat)
		}
		time.Sleep(time.Millisecond)
		for i, seat := range seats {
			seat.Answered(answer(fmt.Sprint(i), 503, "10"))
		}
		if gap := seats[0].host.gap; gap != 2*minGap {
			t.Errorf("after one volley the gap is %s, want %s", gap, 2*minGap)
		}
		if seats[0].Answered(answer("other", 503, "")); seats[0].host.gap >= 2*minGap {
			t.Error("a 503 without Retry-After is taken for a refusal")
		}
	})
}

func answer(path string, status int, retryAfter string) *http.Response {
	req := &http.Request{URL: &url.URL{Scheme: "http", Host: "a.test", Path: path}}
	return &http.Response{Request: req, StatusCode: status, Header: http.Header{"Retry-After": {retryAfter}}}
}
