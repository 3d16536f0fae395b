package web

import (
	"fmt"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"

	"golang.org/x/net/publicsuffix"

	"github.com/ledgerd/ledgerd/plugins/internal/failure"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

// Path is the chain of redirects from the first URL, with the cookies that were set on it. Each check has a Path of its
// own, so no check has the cookies of another.
type Path struct {
	cookies   *cookiejar.Jar
	requested map[string]bool // the keys of the requests so far
	// redirects counts the redirects so far. There may be fewer keys: if a cookie expires between a redirect and its
	// request, that request is the same as an earlier one.
	redirects int
}

// NewPath begins a path.
func NewPath() *Path {
	jar, _ := cookiejar.New(&cookiejar.Options{PublicSuffixList: publicsuffix.List}) // the error is always nil
	return &Path{cookies: jar, requested: map[string]bool{}}
}

// addCookies adds the cookies to a request, and records the request.
func (p *Path) addCookies(req *http.Request) {
	for _, c := range p.cookies.Cookies(req.URL) {
		req.AddCookie(c)
	}
	p.requested[p.requestKey(req.URL)] = true
}

// requestKey identifies a request by its URL and its cookies. Many servers set a cookie and redirect to the same URL,
// so only the same URL with the same cookies is a loop.
func (p *Path) requestKey(u *url.URL) string {
	return fmt.Sprintf("%s %q", u.Redacted(), p.cookies.Cookies(u))
}

// Follow returns the URL to which the answer at u redirects. The error is a *failure.Error.
func (p *Path) Follow(u *url.URL, res *http.Response) (*url.URL, error) {
	location := res.Header.Get("Location")
	if location == "" {
		return nil, failure.Permanent("bad_redirect", fmt.Errorf("status %d without a Location", res.StatusCode))
	}
	to, err := ParseURL(u, location)
	if err != nil {
		return nil, failure.Permanent("bad_redirect", fmt.Errorf("redirect to %.100q: %w", redact.URLs(location), err))
	}
	if to.User == nil && keepsPassword(u, to) {
		to.User = u.User
	}
	if p.redirects++; p.requested[p.requestKey(to)] {
		return nil, failure.Permanent("redirect_loop", fmt.Errorf("redirect loop: %s leads back to %s", u.Redacted(),
			to.Redacted()))
	}
	if p.redirects > maxRedirects {
		return nil, failure.Permanent("too_many_redirects", fmt.Errorf("more than %d redirects", maxRedirects))
	}
	return to, nil
}

// keepsPassword reports whether to gets the password of from: on the same host and port, or from http to https there.
func keepsPassword(from, to *url.URL) bool {
	before, after := from.Scheme+" "+authority(from), to.Scheme+" "+authority(to)
	return before == after || before == "http "+net.JoinHostPort(to.Hostname(), "80") &&
		after == "https "+net.JoinHostPort(to.Hostname(), "443")
}
