package urlcheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/plugins/internal/failure"
	"github.com/ledgerd/ledgerd/plugins/internal/rawtest"
	"github.com/ledgerd/ledgerd/plugins/internal/web"
)

// watch puts a second guard behind a checker's own: what its own lets through is noted and
// refused, so that no test ever reaches beyond loopback. Addresses in allow are dialled.
func watch(c *checker, allow ...string) (passed func() []netip.Addr) {
	var mu sync.Mutex
	var seen []netip.Addr
	own := c.Dialer.Control
	c.Dialer.Control = func(network, address string, raw syscall.RawConn) error {
		if slices.Contains(allow, address) {
			return nil
		}
		if err := own(network, address, raw); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, netip.MustParseAddrPort(address).Addr())
		return errWatched
	}
	return func() []netip.Addr {
		mu.Lock()
		defer mu.Unlock()
		return seen
	}
}

var errWatched = errors.New("the test ends here")

func strict() Config {
	cfg := defaults()
	cfg.AllowPrivate = false
	return cfg
}

// hasIPv6 reports whether this machine can make an IPv6 socket: without one an IPv6 address is
// refused by the system before the guard sees it.
func hasIPv6() bool {
	fd, err := syscall.Socket(syscall.AF_INET6, syscall.SOCK_STREAM, 0)
	if err != nil {
		return false
	}
	return syscall.Close(fd) == nil
}

// private is how an address that is not public can be spelled.
var private = []string{
	"http://127.0.0.1/", "https://127.0.0.1/", "HTTP://127.0.0.1", " http://127.0.0.1/ ", "http://127.0.0.1:8080/",
	"http://127.255.1.2/", "http://0.0.0.0/", "http://0.1.2.3/", "http://10.0.0.1/", "http://10.255.255.255/",
	"http://172.16.0.1/", "http://172.31.255.254/", "http://192.168.1.1/", "http://169.254.169.254/latest/meta-data/",
	"http://169.254.0.1/", "http://100.64.0.1/", "http://100.100.100.200/", "http://100.127.255.255/",
	"http://192.0.0.192/", "http://192.0.2.1/", "http://192.88.99.1/", "http://198.18.0.1/", "http://198.19.255.255/",
	"http://198.51.100.7/", "http://203.0.113.9/", "http://224.0.0.1/", "http://239.255.255.250/",
	"http://240.0.0.1/", "http://255.255.255.255/", "http://168.63.129.16/",
	"http://[::1]/", "http://[::]/", "http://[0:0:0:0:0:0:0:1]/", "http://[0000:0000:0000:0000:0000:0000:0000:0001]:80/",
	"http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://[::FFFF:10.0.0.1]/",
	"http://[0:0:0:0:0:ffff:c0a8:0101]/",
	"http://[::ffff:169.254.169.254]/", "http://[::ffff:0.0.0.0]/", "http://[::127.0.0.1]/", "http://[::7f00:1]/",
	"http://[64:ff9b::127.0.0.1]/", "http://[64:ff9b::7f00:1]/", "http://[64:ff9b::a9fe:a9fe]/",
	"http://[64:ff9b::10.0.0.1]/",
	"http://[64:ff9b:1::1]/", "http://[fc00::1]/", "http://[fd00:ec2::254]/", "http://[fdff::1]/", "http://[fe80::1]/",
	"http://[fe80::1%25lo]/", "http://[fec0::1]/", "http://[ff02::1]/", "http://[ff0e::1]/", "http://[100::1]/",
	"http://[2001:db8::1]/", "http://[2001::1]/", "http://[2002:7f00:1::]/", "http://[3fff::1]/", "http://[5f00::1]/",
	"http://example.com@127.0.0.1/", "http://user:pass@10.0.0.1/", "http://example.com%40@127.0.0.1/",
	"http://127.0.0.1#@example.com/", "http://127.0.0.1?@example.com/", "http://example.com:80@[::1]/",
	"http://localhost/", "http://LOCALHOST/", "http://localhost./", "http://foo.localhost/",
	"http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/", "http://①②⑦.⓪.⓪.①/", "http://127。0。0。1/", "http://１２７.０.０.１/",
	"http://bücher.test/", "http://router.test/", "http://router.test./", "http://metadata.google.internal/",
	"http://127.0.0.1.nip.test/", "http://v6.test/", "http://mapped.test/", "http://nat64.test/",
}

// numeric is how some resolvers let an IPv4 address be spelled, and what is no URL of a host.
var numeric = []string{
	"http://2130706433/", "http://0x7f000001/", "http://0X7F000001/", "http://0x7f.0.0.1/", "http://0177.0.0.1/",
	"http://017700000001/", "http://127.1/", "http://127.0.1/", "http://0/", "http://0x0/", "http://127.0.0.1./",
	"http://127.0.0.01/", "http://127.0.0.0x1/", "http://0x7f.1/", "http://256.256.256.256/", "http://1.2.3.4.5/",
	"http://user@2130706433/", "http://0x/", "http://[::1", "http://127.0.0.1:99999/", "http://127.0.0.1:0/",
	"http:127.0.0.1", "//127.0.0.1/", "127.0.0.1", "http:\\\\127.0.0.1\\", "http:///etc/passwd",
	"file:///etc/passwd", "gopher://127.0.0.1/", "ftp://127.0.0.1/", "javascript:alert(1)", "",
}

func lookup(name string, _ int) netip.Addr {
	switch name {
	case "v6.test":
		return netip.MustParseAddr("::1")
	case "mapped.test":
		return netip.MustParseAddr("::ffff:192.168.0.1")
	case "nat64.test":
		return netip.MustParseAddr("64:ff9b::192.168.0.1")
	case "metadata.google.internal":
		return netip.MustParseAddr("169.254.169.254")
	case "public.test":
		return netip.MustParseAddr("8.8.8.8")
	}
	return netip.MustParseAddr("10.0.0.5")
}

func TestPrivateSpellings(t *testing.T) {
	leakFree(t)
	c := open(t, strict())
	c.Dialer.Resolver = names(t, lookup)
	passed := watch(c)
	check := func(raw string, want ...string) {
		t.Helper()
		_, err := c.check(t.Context(), fine(raw))
		got := code(err)
		if slices.Contains(want, got) {
			return
		}
		t.Errorf("%s: got %q (%v), want %q", raw, got, err, want)
	}
	for _, raw := range private {
		if !hasIPv6() && (strings.Contains(raw, "[") || strings.Contains(raw, "v6") || strings.Contains(raw, "64")) {
			check(raw, "private_address", "network")
			continue
		}
		check(raw, "private_address")
	}
	for _, raw := range numeric {
		check(raw, "bad_url")
	}
	if got := passed(); len(got) > 0 {
		t.Errorf("would have dialled %v", got)
	}
	if n := len(private) + len(numeric); n < 60 {
		t.Errorf("%d spellings, want 60", n)
	}
	_, err := c.check(t.Context(), fine("http://10.0.0.1/"))
	if f, ok := errors.AsType[*failure.Error](err); !ok || f.Fate == failure.Again ||
		!strings.Contains(f.Error(), "--with allow_private=true") {
		t.Errorf("got %v, want a permanent failure that names the fix", err)
	}
}

// The guard lets through what is public, so the table above does not pass by refusing everything.
func TestPublicSpellings(t *testing.T) {
	leakFree(t)
	c := open(t, strict())
	c.Dialer.Resolver = names(t, lookup)
	passed := watch(c)
	for i, raw := range []string{
		"http://8.8.8.8/", "https://1.1.1.1:8443/", "http://public.test/", "http://PUBLIC.test./", "http://９.９.９.９/",
		"http://172.32.0.1/", "http://100.128.0.1/", "http://192.0.1.1/", "http://[::ffff:8.8.8.8]/",
	} {
		_, err := c.check(t.Context(), fine(raw))
		if !errors.Is(err, errWatched) {
			t.Errorf("%s: got %v, want it dialled", raw, err)
		}
		if got := passed(); len(got) != i+1 {
			t.Fatalf("%s: dialled %v, want %d addresses", raw, got, i+1)
		}
	}
	for _, a := range []string{"2606:4700::1111", "2a00:1450::1", "64:ff9b::8.8.8.8", "::ffff:1.1.1.1",
		"2001:4860:4860::8888"} {
		if !web.Public(netip.MustParseAddr(a)) {
			t.Errorf("%s is not public, want public", a)
		}
	}
}

// A name that is public when it is looked at and private when it is dialled gains nothing:
// the address is judged when it is dialled.
func TestRebinding(t *testing.T) {
	leakFree(t)
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close") // so that the next hop dials again
		http.Redirect(w, r, "/next"+r.URL.Path, http.StatusFound)
	})
	at := netip.MustParseAddrPort(srv.Listener.Addr().String())
	c := open(t, strict())
	c.Dialer.Resolver = names(t, func(_ string, n int) netip.Addr {
		if n == 1 {
			return at.Addr()
		}
		return netip.MustParseAddr("127.0.0.2")
	})
	passed := watch(c, at.String())
	out, err := c.check(t.Context(), fine(fmt.Sprintf("http://flip.test:%d/", at.Port())))
	if got := code(err); got != "private_address" || len(out.Redirects) != 1 {
		t.Errorf("got %s after %d hops, want private_address after 1", got, len(out.Redirects))
	}
	if got := passed(); len(got) > 0 {
		t.Errorf("would have dialled %v", got)
	}
}

// Every hop is judged, not the first one only.
func TestRedirectToPrivate(t *testing.T) {
	leakFree(t)
	for _, to := range []string{
		"http://10.0.0.1/", "//[::1]/", "http://localhost:1/", "http://router.test/", "http://[::ffff:127.0.0.1]:9/",
	} {
		srv := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusMovedPermanently)
		})
		c := open(t, strict())
		c.Dialer.Resolver = names(t, lookup)
		passed := watch(c, srv.Listener.Addr().String())
		out, err := c.check(t.Context(), fine(srv.URL))
		if got := code(err); got != "private_address" || len(out.Redirects) != 1 || len(passed()) > 0 {
			t.Errorf("redirect to %s: got %q, redirects %v, dialled %v", to, got, out.Redirects, passed())
		}
	}
}

func TestProxyFromEnvironmentIsIgnored(t *testing.T) {
	leakFree(t)
	proxy := rawtest.Serve(t, func(net.Conn) { t.Error("the proxy was asked") })
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY"} {
		t.Setenv(name, "http://"+proxy)
	}
	c := open(t, strict())
	c.Dialer.Resolver = names(t, lookup)
	passed := watch(c)
	for _, raw := range []string{"http://public.test/", "https://public.test/"} {
		if _, err := c.check(t.Context(), fine(raw)); !errors.Is(err, errWatched) {
			t.Errorf("%s: got %v, want it dialled", raw, err)
		}
	}
	if got := fmt.Sprint(passed()); got != "[8.8.8.8 8.8.8.8]" {
		t.Errorf("dialled %s, want the host itself", got)
	}
}

func TestProxy(t *testing.T) {
	leakFree(t)
	proxy := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		if r.URL.Path == "/paid" {
			w.WriteHeader(http.StatusProxyAuthRequired)
		}
		w.Header().Set("Content-Type", "text/"+r.URL.Host)
	})
	cfg := strict()
	cfg.Proxy = proxy.URL
	c := open(t, cfg)
	c.Dialer.Resolver = names(t, func(string, int) netip.Addr { return netip.Addr{} })
	out, err := c.check(t.Context(), fine("http://example.test/a"))
	if err != nil || out.ContentType != "text/example.test" {
		t.Errorf("got %+v, %v, want the proxy's answer", out, err)
	}
	for url, want := range map[string]string{
		"https://example.test/": "proxy", "http://10.0.0.1/": "private_address", "http://[::1]/": "private_address",
		"http://0x7f.1/": "bad_url", "http://example.test/paid": "proxy",
	} {
		_, err := c.check(t.Context(), fine(url))
		f, ok := errors.AsType[*failure.Error](err)
		if !ok || f.Code != want || (f.Fate == failure.Again) != (want == "proxy") {
			t.Errorf("%s: got %+v, want %s", url, err, want)
		}
	}
	proxy.Close()
	if _, err := c.check(t.Context(), fine("http://example.test/b")); code(err) != "proxy" {
		t.Errorf("without its proxy: got %v, want proxy", err)
	}
	refusing := rawtest.Serve(t, func(c net.Conn) {
		for _, answer := range []string{"\x05\x00", "\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00"} {
			_, _ = c.Read(make([]byte, 512))
			_, _ = io.WriteString(c, answer)
		}
	})
	for _, cfg.Proxy = range []string{"http://nowhere.test:3128", "socks5://" + refusing} {
		c := open(t, cfg)
		c.Dialer.Resolver = names(t, func(string, int) netip.Addr { return netip.Addr{} })
		_, err := c.check(t.Context(), fine("http://example.test/c"))
		if f, ok := errors.AsType[*failure.Error](err); !ok || f.Code != "proxy" || f.Fate != failure.Again {
			t.Errorf("%s: got %+v, want proxy", cfg.Proxy, err)
		}
	}
}

// FuzzURL: no URL makes the checker panic, and none makes it dial an address that net/netip
// knows to be anything but global unicast.
func FuzzURL(f *testing.F) {
	for _, s := range append(private, numeric...) {
		f.Add(s)
	}
	cfg := strict()
	cfg.Deadline = time.Second
	c := open(f, cfg)
	c.Dialer.Resolver = names(f, lookup)
	passed := watch(c)
	f.Fuzz(func(t *testing.T, s string) {
		before := len(passed())
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := c.check(ctx, fine(s))
		if err == nil {
			t.Errorf("%q was accepted, though nothing can be reached", s)
		}
		for _, a := range passed()[before:] {
			a = a.Unmap()
			if !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLoopback() || a.IsUnspecified() {
				t.Errorf("%q: would have dialled %s", s, a)
			}
		}
	})
}
