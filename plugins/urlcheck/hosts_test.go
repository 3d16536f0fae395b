package urlcheck

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
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

// A server that does not answer HEAD is asked with GET in time; one that never answers costs the
// deadline and no more. GET waits for the interval after HEAD, and this wait does not count.
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
	cfg := defaults()
	cfg.Interval = 11 * time.Second
	for host, want := range map[string]struct {
		code string
		took time.Duration
	}{
		"get.test": {"", 11 * time.Second}, "late.test": {"", 30 * time.Second}, "never.test": {"timeout", 31 * time.Second},
		"far.test": {"", 12 * time.Second}, // on its way: no reason for GET
	} {
		inVillage(t, cfg, hang, func(t *testing.T, c *checker) {
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
