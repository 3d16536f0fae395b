package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/plugins/internal/failure"
)

const (
	maxHeader      = 256 << 10        // bytes of a response's headers
	connectTimeout = 10 * time.Second // for a connection, and again for TLS on it
	maxRedirects   = 10
)

// Reach is the config of a Client.
type Reach struct {
	AllowPrivate bool          // also addresses that are not public
	Proxy        string        // its URL; "" is none
	Deadline     time.Duration // for all that belongs to one URL; 100ms to 10m
	PerHost      int           // places at each host, and idle connections that are kept to it
	Interval     time.Duration // between two requests to a host
	UserAgent    string
}

// Validate refuses what cannot work. The error begins with the name of the setting.
func (r Reach) Validate() error {
	if r.Deadline < 100*time.Millisecond || r.Deadline > 10*time.Minute {
		return fmt.Errorf("deadline: %s is not between 100ms and 10m", r.Deadline)
	}
	_, err := r.proxy()
	return err
}

func (r Reach) proxy() (*url.URL, error) {
	if r.Proxy == "" {
		return nil, nil
	}
	u, err := url.Parse(r.Proxy)
	if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) {
		return nil, errors.New("proxy: not a URL like http://proxy.example:3128 (http, https or socks5)")
	}
	return u, nil
}

// Client asks servers. It is safe for concurrent use; Transport and Dialer may be changed before.
type Client struct {
	Transport *http.Transport // makes the connections, and unpacks no bodies
	Dialer    *net.Dialer     // of Transport
	reach     Reach
	hosts     *hosts
}

// NewClient makes a client.
func NewClient(r Reach) (*Client, error) {
	proxy, err := r.proxy()
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: min(connectTimeout, r.Deadline)}
	if !r.AllowPrivate && proxy == nil { // the operator chose the proxy, so its address may be private
		dialer.Control = refusePrivate
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
	if proxy != nil {
		t.Proxy = http.ProxyURL(proxy)
		t.OnProxyConnectResponse = func(_ context.Context, _ *url.URL, _ *http.Request, res *http.Response) error {
			if res.StatusCode == http.StatusOK {
				return nil
			}
			return failure.Transient("proxy", fmt.Errorf("the proxy answers %s", res.Status))
		}
	}
	return &Client{Transport: t, Dialer: dialer, reach: r, hosts: newHosts(r.PerHost, r.Interval)}, nil
}

// Enter takes a place at the host of u. It keeps a seat that is there, and leaves a seat at another host. With a proxy
// it refuses a URL that has a private IP address as its host, because refusePrivate sees only the proxy's address. The
// error is a *failure.Error, a *Busy, or the cause with which ctx ended.
func (c *Client) Enter(ctx context.Context, from *Seat, u *url.URL) (*Seat, error) {
	addr, err := netip.ParseAddr(u.Hostname())
	if err == nil && c.reach.Proxy != "" && !c.reach.AllowPrivate && !Public(addr) {
		return from, failure.Permanent("private_address", &PrivateError{Addr: u.Host})
	}
	return c.hosts.Move(ctx, from, authority(u))
}

// Request makes a request for u. A user and password in u are sent as Basic authorization.
func (c *Client) Request(ctx context.Context, method string, u *url.URL, accept string) *http.Request {
	req := &http.Request{Method: method, URL: u, Header: http.Header{"User-Agent": {c.reach.UserAgent},
		"Accept": {accept}}}
	if u.User != nil {
		password, _ := u.User.Password()
		req.SetBasicAuth(u.User.Username(), password)
	}
	return req.WithContext(ctx)
}

// Do makes a request on a path, with the cookies that were set there, and follows no redirect. The error is one
// for [Classify].
func (c *Client) Do(req *http.Request, path *Path) (*http.Response, error) {
	path.addCookies(req)
	var failed atomic.Bool
	res, err := c.Transport.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) { failed.Store(err != nil) },
	})))
	switch {
	case err == nil && res.StatusCode == http.StatusProxyAuthRequired && c.Transport.Proxy != nil:
		res.Body.Close()
		return nil, failure.Transient("proxy", fmt.Errorf("the proxy answers %s", res.Status))
	case err == nil:
		path.cookies.SetCookies(req.URL, res.Cookies())
	case failed.Load():
		err = &handshakeError{err}
	}
	return res, err
}

// handshakeError is an error of TLS, of any type.
type handshakeError struct{ error }

func (e *handshakeError) Unwrap() error { return e.error }

// IsRedirect reports whether an answer is a redirect that is followed.
func IsRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}
