package urlcheck

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/plugins/internal/failure"
	"github.com/ledgerd/ledgerd/plugins/internal/web"
)

// village is a network in memory, so that a whole list can be checked on a clock that only moves
// when all wait.
type village struct {
	conns chan net.Conn
	done  chan struct{}
}

func (v *village) Accept() (net.Conn, error) {
	select {
	case c := <-v.conns:
		return c, nil
	case <-v.done:
		return nil, net.ErrClosed
	}
}
func (v *village) Close() error   { close(v.done); return nil }
func (v *village) Addr() net.Addr { return &net.TCPAddr{} }

func (v *village) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	if addr == "far.test:80" {
		time.Sleep(12 * time.Second)
	}
	client, server := net.Pipe()
	select {
	case v.conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// inVillage runs test in a bubble with a checker for which every host is served by h.
func inVillage(t *testing.T, cfg Config, h http.HandlerFunc, test func(t *testing.T, c *checker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		v := &village{conns: make(chan net.Conn), done: make(chan struct{})}
		srv := &http.Server{Handler: h}
		var wg sync.WaitGroup
		wg.Go(func() { _ = srv.Serve(v) })
		c, err := newChecker(&cfg)
		must.OK(t, err)
		c.Transport.DialContext = v.dial
		test(t, c)
		c.Transport.CloseIdleConnections()
		if err := srv.Shutdown(t.Context()); err != nil { // waits for handlers, too
			t.Error(err)
		}
		wg.Wait()
	})
}

// workList does what ledgerd does with a list: n places, and what is snoozed comes back when it is
// due, first due first. It returns the number of snoozes.
func workList(t *testing.T, c *checker, places int, urls []string) (snoozes int) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	type item struct {
		url string
		due time.Time
	}
	var backlog []item
	for _, u := range urls {
		backlog = append(backlog, item{url: u})
	}
	// next takes the item that is due first, nil if none is due, and returns when one will be.
	next := func() (it *item, wait time.Duration, left int) {
		mu.Lock()
		defer mu.Unlock()
		first := -1
		for i := range backlog {
			if first < 0 || backlog[i].due.Before(backlog[first].due) {
				first = i
			}
		}
		if first < 0 {
			return nil, 0, 0
		}
		if wait := time.Until(backlog[first].due); wait > 0 {
			return nil, wait, len(backlog)
		}
		got := backlog[first]
		backlog = append(backlog[:first], backlog[first+1:]...)
		return &got, 0, len(backlog) + 1
	}
	running := 0
	for range places {
		wg.Go(func() {
			for {
				it, wait, left := next()
				switch {
				case left == 0:
					mu.Lock()
					idle := running == 0
					mu.Unlock()
					if idle {
						return
					}
					time.Sleep(time.Second) // as often as ledgerd polls
					continue
				case it == nil:
					time.Sleep(min(wait, time.Second))
					continue
				}
				mu.Lock()
				running++
				mu.Unlock()
				_, err := c.check(t.Context(), fine(it.url))
				mu.Lock()
				running--
				b, isBusy := errors.AsType[*web.Busy](err)
				switch {
				case isBusy:
					if b.Wait <= 0 || b.Wait > web.MaxSnooze+time.Minute {
						t.Errorf("%s: snoozed for %s", it.url, b.Wait)
					}
					snoozes++
					backlog = append(backlog, item{it.url, time.Now().Add(b.Wait)})
				case err != nil:
					t.Errorf("%s: %v", it.url, err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return snoozes
}

// counter notes how many requests run at once and when they started, by host.
type counter struct {
	mu      sync.Mutex
	now     map[string]int
	most    map[string]int
	starts  map[string][]time.Time
	answers time.Duration // how long an answer takes
}

func newCounter(answers time.Duration) *counter {
	return &counter{now: map[string]int{}, most: map[string]int{}, starts: map[string][]time.Time{}, answers: answers}
}

func (c *counter) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.now[r.Host]++
	c.most[r.Host] = max(c.most[r.Host], c.now[r.Host])
	c.starts[r.Host] = append(c.starts[r.Host], time.Now())
	c.mu.Unlock()
	time.Sleep(c.answers)
	c.mu.Lock()
	c.now[r.Host]--
	c.mu.Unlock()
}

func list(n int, hosts ...string) (urls []string) {
	for _, h := range hosts {
		for i := range n {
			urls = append(urls, fmt.Sprintf("http://%s/%d", h, i))
		}
	}
	return urls
}

func TestPerHost(t *testing.T) {
	cfg := defaults()
	cfg.PerHost = 3
	count := newCounter(100 * time.Millisecond)
	inVillage(t, cfg, count.ServeHTTP, func(t *testing.T, c *checker) {
		began := time.Now()
		snoozes := workList(t, c, 64, list(300, "a.test", "b.test"))
		took := time.Since(began)
		for _, h := range []string{"a.test", "b.test"} {
			if count.most[h] != 3 || len(count.starts[h]) != 300 {
				t.Errorf("%s: %d requests, %d at once; want 300, 3 at once", h, len(count.starts[h]), count.most[h])
			}
		}
		// 300 checks of 100 ms, three at a time, are 10 s of work for either host.
		if took > 20*time.Second || snoozes > 2*600 {
			t.Errorf("took %s and %d snoozes, want about 10 s and one snooze per item at most", took, snoozes)
		}
		t.Logf("took %s, %d snoozes", took, snoozes)
	})
}

func TestInterval(t *testing.T) {
	cfg := defaults()
	cfg.Interval = 700 * time.Millisecond
	count := newCounter(50 * time.Millisecond)
	inVillage(t, cfg, func(w http.ResponseWriter, r *http.Request) {
		count.ServeHTTP(w, r)
		if r.Method == http.MethodHead { // so that every check needs two requests
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
	}, func(t *testing.T, c *checker) {
		began := time.Now()
		snoozes := workList(t, c, 16, list(50, "a.test"))
		took := time.Since(began)
		starts := count.starts["a.test"]
		for i := 1; i < len(starts); i++ {
			if gap := starts[i].Sub(starts[i-1]); gap < cfg.Interval {
				t.Errorf("request %d came %s after the one before, want %s", i, gap, cfg.Interval)
			}
		}
		if len(starts) != 100 {
			t.Errorf("%d requests, want 100", len(starts))
		}
		t.Logf("took %s, %d snoozes; 99 intervals are %s", took, snoozes, 99*cfg.Interval)
		if took > 2*99*cfg.Interval || snoozes > 500 {
			t.Errorf("took %s and %d snoozes", took, snoozes)
		}
	})
}

// A host that hangs does not keep others waiting, though the list is sorted by host and every
// place is taken by the first host at the start.
func TestSlowHostDoesNotBlockOthers(t *testing.T) {
	cfg := defaults()
	var lastFast time.Time
	var mu sync.Mutex
	inVillage(t, cfg, func(_ http.ResponseWriter, r *http.Request) {
		if r.Host == "slow.test" {
			time.Sleep(9 * time.Second)
			return
		}
		time.Sleep(10 * time.Millisecond)
		mu.Lock()
		lastFast = time.Now()
		mu.Unlock()
	}, func(t *testing.T, c *checker) {
		began := time.Now()
		snoozes := workList(t, c, 8, list(40, "slow.test", "b.test", "c.test"))
		if took := lastFast.Sub(began); took > 30*time.Second {
			t.Errorf("the fast hosts were done after %s, want within seconds; the slow one took %s", took, time.Since(began))
		} else {
			t.Logf("fast hosts done after %s, all after %s, %d snoozes", took, time.Since(began), snoozes)
		}
	})
}

// Retry-After puts off the link that got it, and no other of its host. What servers write there: TestRetryAfter of
// plugins/internal/web.
func TestRetryAfter(t *testing.T) {
	for _, tt := range []struct {
		status int
		header string
		after  time.Duration
	}{{429, "30", 30 * time.Second}, {500, "5", 5 * time.Second}, {429, "soon", 0}, {404, "30", 0}} {
		inVillage(t, defaults(), func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/refused" {
				return
			}
			w.Header().Set("Retry-After", tt.header)
			w.WriteHeader(tt.status)
		}, func(t *testing.T, c *checker) {
			out, err := c.check(t.Context(), fine("http://a.test/refused"))
			b, put := errors.AsType[*web.Busy](err)
			f, failed := errors.AsType[*failure.Error](err)
			switch {
			case tt.after > 0 && (!put || b.Wait != tt.after || !strings.Contains(b.Error(), fmt.Sprint("status ", tt.status))):
				t.Errorf("%d %q: got %+v, want to be asked again after %s", tt.status, tt.header, err, tt.after)
			case tt.after == 0 && (!failed || f.Code != fmt.Sprintf("http_%d", tt.status) || f.After != 0):
				t.Errorf("%d %q: got %+v, want a failure", tt.status, tt.header, err)
			case out.Status != tt.status:
				t.Errorf("%d %q: output %+v", tt.status, tt.header, out)
			}
			began := time.Now()
			workList(t, c, 4, list(20, "a.test"))
			if took := time.Since(began); took > time.Minute {
				t.Errorf("%d %q: the host's other links took %s", tt.status, tt.header, took)
			}
		})
	}
}

// A host that takes a few requests a second gets about as many. No healthy link fails because of those that came
// too early, and those wait for as long as the host asks for.
func TestHostWithLimit(t *testing.T) {
	var mu sync.Mutex
	tokens, filled, refused := 5.0, time.Time{}, 0
	inVillage(t, defaults(), func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		tokens = min(5, tokens+2*time.Since(filled).Seconds()) // 2 a second, 5 at once
		if filled = time.Now(); tokens < 1 {
			refused++
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		tokens--
	}, func(t *testing.T, c *checker) {
		began := time.Now()
		snoozes := workList(t, c, 64, list(200, "a.test"))
		took := time.Since(began)
		t.Logf("took %s, %d refusals, %d snoozes", took, refused, snoozes)
		if took > 10*time.Minute || refused > 100 {
			t.Errorf("took %s with %d refusals; at the host's own pace it is 100 s", took, refused)
		}
	})
}

// A server that does not answer HEAD is asked with GET in time; one that never answers costs the
// deadline and no more.
func TestDeadline(t *testing.T) {
	hang := func(_ http.ResponseWriter, r *http.Request) {
		switch {
		case r.Host == "get.test" && r.Method == http.MethodGet, r.Host == "far.test":
		case r.Host == "late.test" && r.Method == http.MethodGet:
			time.Sleep(19 * time.Second)
		default:
			<-r.Context().Done()
		}
	}
	for host, want := range map[string]struct {
		code string
		took time.Duration
	}{
		"get.test": {"", 10 * time.Second}, "late.test": {"", 29 * time.Second}, "never.test": {"timeout", 30 * time.Second},
		"far.test": {"", 12 * time.Second}, // on its way: no reason for GET
	} {
		inVillage(t, defaults(), hang, func(t *testing.T, c *checker) {
			began := time.Now()
			_, err := c.check(t.Context(), fine("http://"+host))
			if took := time.Since(began); code(err) != want.code || took != want.took {
				t.Errorf("%s: got %q after %s, want %q after %s", host, code(err), took, want.code, want.took)
			}
		})
	}
}

// The deadline is for all hops together.
func TestDeadlineOverRedirects(t *testing.T) {
	inVillage(t, defaults(), func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(7 * time.Second)
		http.Redirect(w, r, r.URL.Path+"x", http.StatusFound)
	}, func(t *testing.T, c *checker) {
		began := time.Now()
		out, err := c.check(t.Context(), fine("http://a.test/"))
		if took := time.Since(began); code(err) != "timeout" || took != 30*time.Second || len(out.Redirects) != 4 {
			t.Errorf("got %q after %s and %d hops, want timeout after 30s and 4", code(err), took, len(out.Redirects))
		}
	})
}
