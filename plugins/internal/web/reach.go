package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/plugins/internal/failure"
)

const (
	maxHeader      = 256 << 10        // bytes of a response's headers
	connectTimeout = 10 * time.Second // for a connection, and again for TLS on it
	maxRedirects   = 10
)

// Reach is how far a plugin may go.
type Reach struct {
	AllowPrivate bool
	Proxy        *url.URL      // nil: none
	Deadline     time.Duration // for all that belongs to one URL
	PerHost      int           // idle connections that are kept
}

// ParseProxy reads the URL of a proxy; "" is none.
func ParseProxy(text string) (*url.URL, error) {
	if text == "" {
		return nil, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) {
		return nil, errors.New("proxy: not a URL like http://proxy.example:3128 (http, https or socks5)")
	}
	return u, nil
}

// Transport makes the connections, through the dialer that is returned beside it. Bodies come as
// they were sent: nothing is unpacked.
func (r Reach) Transport() (*http.Transport, *net.Dialer) {
	dialer := &net.Dialer{Timeout: min(connectTimeout, r.Deadline)}
	if !r.AllowPrivate && r.Proxy == nil { // a proxy itself is where the operator put it
		dialer.Control = RefusePrivate
	}
	t := &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{},
		TLSHandshakeTimeout:    min(connectTimeout, r.Deadline),
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
		MaxIdleConns:           256,
		MaxIdleConnsPerHost:    r.PerHost,
		IdleConnTimeout:        15 * time.Second,
	}
	if r.Proxy != nil {
		t.Proxy = http.ProxyURL(r.Proxy)
		t.OnProxyConnectResponse = func(_ context.Context, _ *url.URL, _ *http.Request, res *http.Response) error {
			if res.StatusCode == http.StatusOK {
				return nil
			}
			return failure.Transient("proxy", fmt.Errorf("the proxy answers %s", res.Status))
		}
	}
	return t, dialer
}

// Judge refuses a URL whose address stands in it, if a proxy dials: then this is the last place to
// judge it.
func (r Reach) Judge(u *url.URL) error {
	if r.Proxy == nil || r.AllowPrivate {
		return nil
	}
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil && !Public(addr) {
		return failure.Permanent("private_address", &PrivateError{Addr: u.Host})
	}
	return nil
}

// IsRedirect says whether an answer is a redirect that is followed.
func IsRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// Path is the way of redirects from the first URL: those that have been left behind, redacted.
type Path []string

// Follow is where an answer at u leads; it adds u to the path. The error is a *failure.Error.
func (p *Path) Follow(u *url.URL, res *http.Response) (*url.URL, error) {
	location := res.Header.Get("Location")
	if location == "" {
		return nil, failure.Permanent("bad_redirect", fmt.Errorf("status %d without a Location", res.StatusCode))
	}
	to, err := ParseURL(u, location)
	if err != nil {
		return nil, failure.Permanent("bad_redirect", fmt.Errorf("redirect to %.100q: %w", location, err))
	}
	*p = append(*p, u.Redacted())
	if back := to.Redacted(); slices.Contains(*p, back) {
		return nil, failure.Permanent("redirect_loop", fmt.Errorf("redirect loop: %s leads back to %s", u.Redacted(), back))
	}
	if len(*p) > maxRedirects {
		return nil, failure.Permanent("too_many_redirects", fmt.Errorf("more than %d redirects", maxRedirects))
	}
	return to, nil
}
