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

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/plugins/internal/failure"
	"github.com/ledgerd/ledgerd/plugins/internal/web"
)

// village is a network in memory, so that a link can be checked on a clock that only moves when
// all wait.
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

// A link that is refused comes again when Retry-After asks for it. Values of Retry-After, and what a refusal means for
// the other links of a host, have their tests in plugins/internal/web.
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
		})
	}
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

// The settings per_host and interval hold for HEAD and for GET. No host waits for another.
func TestPace(t *testing.T) {
	cfg := defaults()
	cfg.PerHost, cfg.Interval = 1, 100*time.Millisecond
	var mu sync.Mutex
	var got []string
	var times []time.Time // of requests to a.test
	note := func(what string, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, what+" "+r.Host+r.URL.Path)
		if what == r.Method && r.Host == "a.test" {
			times = append(times, time.Now())
		}
	}
	inVillage(t, cfg, func(w http.ResponseWriter, r *http.Request) {
		note(r.Method, r)
		switch {
		case r.Method == http.MethodGet:
			time.Sleep(3 * cfg.Interval)
			note("answer", r)
		case r.Host == "a.test":
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
	}, func(t *testing.T, c *checker) {
		var all sync.WaitGroup
		for _, u := range []string{"http://a.test/1", "http://a.test/2", "http://b.test/"} {
			all.Go(func() {
				if _, err := c.check(t.Context(), fine(u)); err != nil {
					t.Errorf("%s: %v", u, err)
				}
			})
			synctest.Wait() // a.test/1 waits for its turn to GET, then a.test/2 for a place
		}
		all.Wait()
		want := []string{"HEAD a.test/1", "HEAD b.test/", "GET a.test/1", "answer a.test/1", "HEAD a.test/2", "GET a.test/2",
			"answer a.test/2"}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("requests (-want +got):\n%s", d)
		}
		for i := 1; i < len(times); i++ {
			if gap := times[i].Sub(times[i-1]); gap < cfg.Interval {
				t.Errorf("request %d to a.test came %s after the one before, want %s", i, gap, cfg.Interval)
			}
		}
	})
}
