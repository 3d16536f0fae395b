package urlcheck

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/plugins/internal/failure"
	"github.com/ledgerd/ledgerd/plugins/internal/web"
)

func TestStatus(t *testing.T) {
	leakFree(t)
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var status int
		if _, err := fmt.Sscanf(r.URL.Path, "/%d", &status); err != nil {
			t.Error(err)
		}
		w.WriteHeader(status)
	})
	c := open(t, defaults())
	for _, tt := range []struct {
		status int
		accept string // "" is the default
		code   string
		retry  bool
	}{
		{200, "", "", false},
		{204, "", "", false},
		{299, "", "", false},
		{300, "", "http_300", false},
		{304, "", "http_304", false},
		{400, "", "http_400", false},
		{401, "", "http_401", false},
		{403, "", "http_403", false},
		{404, "", "http_404", false},
		{405, "", "http_405", false},
		{408, "", "http_408", true},
		{410, "", "http_410", false},
		{425, "", "http_425", true},
		{429, "", "http_429", true},
		{451, "", "http_451", false},
		{500, "", "http_500", true},
		{503, "", "http_503", true},
		{599, "", "http_599", true},
		{600, "", "http_600", false},
		{999, "", "http_999", false},
		{404, "404", "", false},
		{404, "200-299,400-404", "", false},
		{429, "429", "", false},
		{200, "404", "http_200", false},
		{302, "200-399", "", false},
		{200, "2xx", "bad_accept", false},
		{200, "299-200", "bad_accept", false},
		{200, "99", "bad_accept", false},
		{200, "200-1000", "bad_accept", false},
		{200, ",", "bad_accept", false},
	} {
		in := fine(fmt.Sprintf("%s/%d", srv.URL, tt.status))
		if tt.accept != "" {
			in.Accept = strings.Split(tt.accept, ",")
		}
		out, err := c.check(t.Context(), in)
		f, _ := errors.AsType[*failure.Error](err)
		if code(err) != tt.code || f != nil && (f.Fate == failure.Again) != tt.retry {
			t.Errorf("%d, accept %q: got %q (%+v), want %q, retry %v", tt.status, tt.accept, code(err), f, tt.code, tt.retry)
		}
		if tt.code != "bad_accept" && out.Status != tt.status {
			t.Errorf("%d: output has %d", tt.status, out.Status)
		}
	}
	if _, err := c.check(t.Context(), In{URL: srv.URL}); code(err) != "bad_accept" {
		t.Errorf("without an accept list: got %v, want bad_accept", err)
	}
}

// GET decides where HEAD is not accepted or is an error, unless the server wants to be left alone.
func TestHeadAndGet(t *testing.T) {
	leakFree(t)
	for _, tt := range []struct {
		head, get int
		asked     string
		code      string
		accept    []string // nil is the default
	}{
		{200, 500, "HEAD", "", nil},
		{405, 200, "HEAD GET", "", nil},
		{501, 200, "HEAD GET", "", nil},
		{403, 200, "HEAD GET", "", nil},
		{404, 200, "HEAD GET", "", nil},
		{400, 200, "HEAD GET", "", nil},
		{500, 200, "HEAD GET", "", nil},
		{503, 200, "HEAD GET", "", nil},
		{404, 404, "HEAD GET", "http_404", nil},
		{405, 410, "HEAD GET", "http_410", nil},
		{429, 200, "HEAD", "http_429", nil},
		{0, 200, "HEAD GET", "", nil}, // 0: the connection is closed without an answer
		{0, 404, "HEAD GET", "http_404", nil},
		{405, 0, "HEAD GET", "reset", nil},
		{404, 200, "HEAD GET", "http_200", []string{"404"}},
		{404, 404, "HEAD GET", "", []string{"404"}},
		{503, 200, "HEAD GET", "http_200", []string{"503"}},
		{301, 200, "HEAD", "", []string{"301"}},
		{429, 200, "HEAD", "", []string{"429"}},
	} {
		var asked []string
		srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
			status := tt.head
			if r.Method == http.MethodGet {
				status = tt.get
			}
			asked = append(asked, r.Method)
			if status == 0 {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(status)
		})
		out, err := open(t, defaults()).check(t.Context(), fine(srv.URL, tt.accept...))
		srv.Close() // joins the handlers
		// The transport itself repeats a request on a connection that died while idle.
		if got := strings.Join(slices.Compact(asked), " "); got != tt.asked || code(err) != tt.code {
			t.Errorf("HEAD %d, GET %d: asked %s, got %v; want %s, %q", tt.head, tt.get, got, err, tt.asked, tt.code)
		}
		if last := tt.asked[strings.LastIndexByte(tt.asked, ' ')+1:]; out.Method != last {
			t.Errorf("HEAD %d, GET %d: output has %s", tt.head, tt.get, out.Method)
		}
	}
}

func TestOutput(t *testing.T) {
	leakFree(t)
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if got := r.UserAgent() + " " + user + ":" + password + " " +
			r.Header.Get("Accept-Encoding"); got != "test-agent/1 me:secret " {
			t.Errorf("request has %q", got)
		}
		switch {
		case r.URL.Path == "/a":
			http.Redirect(w, r, "http://"+r.Host+"/b?q=1", http.StatusFound)
		case r.Method == http.MethodHead:
			w.WriteHeader(http.StatusMethodNotAllowed)
		default:
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, "gone")
			w.(http.Flusher).Flush() // chunked: the length is known when it was read
		}
	})
	host := strings.TrimPrefix(srv.URL, "http://")
	out, err := open(t, defaults()).check(t.Context(), fine("http://me:secret@"+host+"/a#top"))
	if code(err) != "http_404" || err.Error() != "status 404 Not Found" {
		t.Errorf("got %v, want http_404", err)
	}
	if out.ResponseMS <= 0 || out.ResponseMS > 30_000 {
		t.Errorf("response_ms is %v", out.ResponseMS)
	}
	out.ResponseMS = 0
	want := Out{
		Status: 404, FinalURL: "http://me:xxxxx@" + host + "/b?q=1", Method: "GET", Protocol: "HTTP/1.1",
		ContentType: "text/plain; charset=utf-8", ContentLength: new(int64(4)),
		Redirects: []Hop{{URL: "http://me:xxxxx@" + host + "/a", Status: 302}},
	}
	if diff := cmp.Diff(want, out); diff != "" {
		t.Error(diff)
	}
}

func TestRedirects(t *testing.T) {
	leakFree(t)
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var left, status int
		switch p := r.URL.Path; {
		case p == "/":
			w.WriteHeader(http.StatusOK)
		case p == "/self", p == "/ping", p == "/pong":
			http.Redirect(w, r, map[string]string{"/self": "/self#x", "/ping": "/pong", "/pong": "/ping"}[p], http.StatusFound)
		case p == "/to":
			w.Header().Set("Location", r.URL.RawQuery)
			w.WriteHeader(http.StatusMovedPermanently)
		case p == "/long":
			http.Redirect(w, r, "/"+strings.Repeat("a", web.MaxURL), http.StatusFound)
		case p == "/none":
			w.WriteHeader(http.StatusFound)
		default:
			if _, err := fmt.Sscanf(p, "/%d/%d", &status, &left); err != nil {
				t.Errorf("%s: %v", p, err)
			}
			to := fmt.Sprintf("/%d/%d", status, left-1)
			if left == 1 {
				to = "/"
			}
			w.Header().Set("Location", to)
			w.WriteHeader(status)
		}
	})
	c := open(t, defaults())
	for _, tt := range []struct {
		path, accept, code string
		hops               int
		message            string
	}{
		{"/301/1", "", "", 1, ""},
		{"/302/3", "", "", 3, ""},
		{"/303/1", "", "", 1, ""},
		{"/307/2", "", "", 2, ""},
		{"/308/10", "", "", 10, ""},
		{"/308/11", "", "too_many_redirects", 11, "more than 10"},
		{"/301/1", "301", "", 0, ""},
		{"/302/2", "301", "http_200", 2, ""},
		{"/300/1", "", "http_300", 0, ""},
		{"/305/1", "", "http_305", 0, ""},
		{"/self", "", "redirect_loop", 1, "/self leads back to"},
		{"/ping", "", "redirect_loop", 2, "/pong leads back to"},
		{"/none", "", "bad_redirect", 0, "without a Location"},
		{"/to?file:///etc/passwd", "", "bad_redirect", 0, `scheme "file"`},
		{"/to?javascript:alert(1)", "", "bad_redirect", 0, "scheme"},
		{"/to?http://2130706433/", "", "bad_redirect", 0, "four decimal numbers"},
		{"/to?http://[", "", "bad_redirect", 0, "missing ']'"},
		{"/long", "", "bad_redirect", 0, "longer than"},
		{"/to?ftp://user:hunter2@host/", "", "bad_redirect", 0, "ftp://user:***@host/"},
	} {
		in := fine(srv.URL + tt.path)
		if tt.accept != "" {
			in.Accept = []string{tt.accept}
		}
		out, err := c.check(t.Context(), in)
		if code(err) != tt.code || len(out.Redirects) != tt.hops || err != nil && !strings.Contains(err.Error(), tt.message) {
			t.Errorf("%s: got %v after %d hops, want %q after %d, with %q", tt.path, err, len(out.Redirects), tt.code, tt.hops,
				tt.message)
		}
		if f, ok := errors.AsType[*failure.Error](err); ok && f.Fate == failure.Again {
			t.Errorf("%s: would be tried again", tt.path)
		}
	}
	out, _ := c.check(t.Context(), fine(srv.URL+"/307/2"))
	want := []Hop{{srv.URL + "/307/2", 307}, {srv.URL + "/307/1", 307}}
	if diff := cmp.Diff(want, out.Redirects); diff != "" || out.FinalURL != srv.URL+"/" {
		t.Errorf("final %s, redirects %s", out.FinalURL, diff)
	}
}

func TestTLS(t *testing.T) {
	leakFree(t)
	ca, stranger := newCA(t), newCA(t)
	soon := time.Now().Add(10*24*time.Hour + time.Minute)
	ok := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }
	good := serveTLS(t, ca.issue("127.0.0.1", soon), false, ok)
	plain := serve(t, ok)
	wants := serveTLS(t, ca.issue("127.0.0.1", soon), false, ok)
	wants.TLS.ClientAuth = tls.RequireAnyClientCert
	for _, tt := range []struct {
		name, url, code string
		days            int
	}{
		{"good", good.URL, "", 10},
		{"http2", serveTLS(t, ca.issue("127.0.0.1", soon), true, ok).URL, "", 10},
		{"expired", serveTLS(t, ca.issue("127.0.0.1", time.Now().Add(-36*time.Hour)), false, ok).URL, "tls_expired", -2},
		{"wrong host", serveTLS(t, ca.issue("other.test", soon), false, ok).URL, "tls_hostname", 10},
		{"untrusted", serveTLS(t, stranger.issue("127.0.0.1", soon), false, ok).URL, "tls_untrusted", 10},
		{"wants a certificate of ours", wants.URL, "tls", 0},
		{"http behind https", strings.Replace(plain.URL, "http", "https", 1), "tls", 0},
		{"https behind http", strings.Replace(good.URL, "https", "http", 1), "http_400", 0},
	} {
		c := open(t, defaults())
		c.Transport.TLSClientConfig.RootCAs = ca.pool
		out, err := c.check(t.Context(), fine(tt.url))
		if code(err) != tt.code {
			t.Errorf("%s: got %q (%v), want %q", tt.name, code(err), err, tt.code)
		}
		if f, ok := errors.AsType[*failure.Error](err); ok && f.Fate == failure.Again {
			t.Errorf("%s: would be tried again", tt.name)
		}
		if tt.days == 0 {
			if out.TLS != nil {
				t.Errorf("%s: certificate %+v", tt.name, out.TLS)
			}
			continue
		}
		if out.TLS == nil || out.TLS.DaysLeft != tt.days || len(out.TLS.Names) != 1 || out.TLS.Issuer != "Test CA" {
			t.Errorf("%s: certificate %+v, want one for %d days by Test CA", tt.name, out.TLS, tt.days)
		}
		if want := map[string]string{"http2": "HTTP/2.0", "good": "HTTP/1.1"}[tt.name]; out.Protocol != want {
			t.Errorf("%s: protocol %q, want %q", tt.name, out.Protocol, want)
		}
	}
}

// A server that gives a request of HTTP/2 up in the middle may answer the next one.
func TestAbortedHTTP2(t *testing.T) {
	leakFree(t)
	ca := newCA(t)
	cert := ca.issue("127.0.0.1", time.Now().Add(time.Hour))
	srv := serveTLS(t, cert, true, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/body" && r.Method == http.MethodHead:
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		case r.URL.Path == "/body":
			_, _ = io.WriteString(w, "half")
			w.(http.Flusher).Flush()
		}
		panic(http.ErrAbortHandler)
	})
	c := open(t, defaults())
	c.Transport.TLSClientConfig.RootCAs = ca.pool
	_, err := c.check(t.Context(), fine(srv.URL))
	if f, ok := errors.AsType[*failure.Error](err); !ok || f.Code != "reset" || f.Fate != failure.Again {
		t.Errorf("before the answer: %+v, want reset, tried again", err)
	}
	out, err := c.check(t.Context(), fine(srv.URL+"/body"))
	if err != nil || !strings.Contains(out.Note, "broke off after 4 bytes") {
		t.Errorf("in the body: %+v, %v, want a note", out, err)
	}
}

// The answer of the hop before is not taken for the answer of the last.
func TestRedirectToNoAnswer(t *testing.T) {
	leakFree(t)
	gone := serve(t, func(http.ResponseWriter, *http.Request) {})
	gone.Close()
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, gone.URL, http.StatusFound) })
	out, err := open(t, defaults()).check(t.Context(), fine(srv.URL))
	want := Out{FinalURL: gone.URL, Method: "HEAD", Redirects: []Hop{{srv.URL, 302}}}
	if diff := cmp.Diff(want, out); diff != "" || code(err) != "refused" {
		t.Errorf("got %v and %s", err, diff)
	}
}

func TestNoAnswer(t *testing.T) {
	leakFree(t)
	gone := serve(t, func(http.ResponseWriter, *http.Request) {})
	gone.Close()
	noHost := names(t, func(string, int) netip.Addr { return netip.Addr{} })
	broken := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no name server today")
	}}
	for _, tt := range []struct {
		resolver  *net.Resolver
		url, code string
		retry     bool
	}{
		{noHost, gone.URL, "refused", true},
		{noHost, "http://nowhere.test/", "no_such_host", false},
		{noHost, "http://a..b/", "no_such_host", false},
		{broken, "http://nowhere.test/", "dns", true},
	} {
		c := open(t, defaults())
		c.Dialer.Resolver = tt.resolver
		_, err := c.check(t.Context(), fine(tt.url))
		if f, ok := errors.AsType[*failure.Error](err); !ok || f.Code != tt.code || (f.Fate == failure.Again) != tt.retry {
			t.Errorf("%s: got %q (%v), want %q, retry %v", tt.url, code(err), err, tt.code, tt.retry)
		}
	}
}

// Cancelling ends a check at once, wherever it is, with the cause.
func TestCancel(t *testing.T) {
	leakFree(t)
	entered := make(chan struct{}, 8)
	release := make(chan struct{})
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-release:
		}
	})
	defer close(release)
	cfg := defaults()
	cfg.PerHost = 1
	c := open(t, cfg)
	why := errors.New("not wanted any more")
	ctx, cancel := context.WithCancelCause(t.Context())
	var wg sync.WaitGroup
	for range 3 { // one is answered late, the others wait for their turn
		wg.Go(func() {
			if _, err := c.check(ctx, fine(srv.URL)); !errors.Is(err, why) {
				if _, isBusy := errors.AsType[*web.Busy](err); !isBusy {
					t.Errorf("got %v, want the cause", err)
				}
			}
		})
	}
	<-entered
	cancel(why)
	wg.Wait()
	if len(entered) > 0 {
		t.Errorf("%d more requests after the first", len(entered))
	}
}
