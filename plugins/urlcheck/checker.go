package urlcheck

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/plugins/internal/failure"
	"github.com/ledgerd/ledgerd/plugins/internal/web"
)

const maxText = 200 // bytes of what a server writes into the output

// checker checks URLs. It is safe for concurrent use.
type checker struct {
	*web.Client
	cfg Config
}

func newChecker(cfg *Config) (*checker, error) {
	client, err := web.NewClient(cfg.reach())
	return &checker{client, *cfg}, err
}

// check checks one URL. The output is valid also with an error. The error is nil if the URL was accepted, a
// *failure.Error if not, a *web.Busy if the URL has to wait, else the cause with which ctx ended.
func (c *checker) check(ctx context.Context, in In) (Out, error) {
	v := &visit{checker: c, left: c.cfg.Deadline, path: web.NewPath()}
	defer func() { v.seat.Leave() }()
	err := v.follow(ctx, in)
	return v.out, err
}

// visit is a running check.
type visit struct {
	*checker
	accept []statusRange
	left   time.Duration // of the deadline
	seat   *web.Seat     // at the current host; nil at first
	path   *web.Path
	out    Out
}

// follow requests the URL and the URLs to which it redirects.
func (v *visit) follow(ctx context.Context, in In) error {
	var err error
	if v.accept, err = parseAccept(in.Accept); err != nil {
		return failure.Permanent("bad_accept", err)
	}
	u, err := web.ParseURL(&url.URL{}, in.URL)
	if err != nil {
		return failure.Permanent("bad_url", err)
	}
	for {
		v.out = Out{FinalURL: u.Redacted(), Redirects: v.out.Redirects}
		res, err := v.ask(ctx, u)
		if err != nil {
			return err
		}
		v.seat.Answered(res)
		switch {
		case v.accepted(res):
			return nil
		case !web.IsRedirect(res.StatusCode):
			f := web.StatusError(res)
			if f.After > 0 { // the host gets too many requests: this tells nothing about the URL
				return v.seat.Later(f)
			}
			return f
		}
		if u, err = v.redirect(u, res); err != nil {
			return err
		}
	}
}

// redirect returns the URL to which res, the answer at u, redirects, and adds the hop to the output.
func (v *visit) redirect(u *url.URL, res *http.Response) (*url.URL, error) {
	to, err := v.path.Follow(u, res)
	if f, ok := errors.AsType[*failure.Error](err); !ok || f.Code != "bad_redirect" {
		v.out.Redirects = append(v.out.Redirects, Hop{URL: u.Redacted(), Status: res.StatusCode})
	}
	return to, err
}

// ask requests u with HEAD and, if this answer does not decide, with GET.
func (v *visit) ask(ctx context.Context, u *url.URL) (*http.Response, error) {
	var err error
	if v.seat, err = v.Enter(ctx, v.seat, u); err != nil {
		return nil, err
	}
	res, connected, err := v.request(ctx, http.MethodHead, u, v.cfg.Deadline/3)
	switch {
	case err != nil && (!connected || ctx.Err() != nil):
		return nil, err
	case err == nil && (v.accepted(res) && res.StatusCode < 400 || web.IsRedirect(res.StatusCode) || web.Refuses(res)):
		return res, nil
	}
	res, _, err = v.request(ctx, http.MethodGet, u, v.left)
	return res, err
}

// request makes one request without following redirects. Once it has a connection, it may take as long as limit.
// connected reports whether it got one.
func (v *visit) request(ctx context.Context, method string, u *url.URL, limit time.Duration) (res *http.Response,
	connected bool, err error) {
	if err := v.seat.Turn(ctx); err != nil {
		return nil, false, err
	}
	began := time.Now()
	end := began.Add(v.left)
	defer func() { v.left = time.Until(end) }()
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(v.left, func() { cancel(web.ErrDeadline) })
	defer timer.Stop()
	var gotConn atomic.Bool
	traced := httptrace.WithClientTrace(limited, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		gotConn.Store(true)
		timer.Reset(min(limit, time.Until(end)))
	}})
	v.out = Out{FinalURL: v.out.FinalURL, Redirects: v.out.Redirects, Method: method}
	res, err = v.Do(v.Request(traced, method, u, "*/*"), v.path)
	if err == nil {
		v.out.ResponseMS = float64(time.Since(began).Microseconds()) / 1000
		v.record(res)
		v.drain(res)
	}
	switch {
	case ctx.Err() != nil:
		return nil, true, context.Cause(ctx)
	case err != nil:
		if limited.Err() != nil {
			err = web.ErrDeadline
		}
		if cert, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
			v.out.TLS = describe(cert.UnverifiedCertificates)
		}
		return nil, gotConn.Load(), web.Classify(err)
	}
	return res, true, nil
}

// record copies status and headers to the output.
func (v *visit) record(res *http.Response) {
	v.out.Status = res.StatusCode
	v.out.Protocol = res.Proto
	v.out.ContentType = clip(res.Header.Get("Content-Type"))
	if res.ContentLength >= 0 {
		v.out.ContentLength = &res.ContentLength
	}
	if res.TLS != nil {
		v.out.TLS = describe(res.TLS.PeerCertificates)
	}
}

// drain reads the body, if there is one to read, and closes it. After 101 the body is the connection itself, without a
// deadline.
func (v *visit) drain(res *http.Response) {
	defer res.Body.Close()
	if res.Request.Method == http.MethodHead || res.StatusCode == http.StatusSwitchingProtocols ||
		web.IsRedirect(res.StatusCode) && !v.accepted(res) {
		return
	}
	if res.ContentLength > v.cfg.MaxBody {
		v.out.Note = fmt.Sprintf("body of %d bytes not read: over max_body", res.ContentLength)
		return
	}
	n, err := io.Copy(io.Discard, io.LimitReader(res.Body, v.cfg.MaxBody+1))
	switch {
	case err != nil:
		v.out.Note = clip(fmt.Sprintf("body broke off after %d bytes: %v", n, err))
	case n > v.cfg.MaxBody:
		v.out.Note = fmt.Sprintf("body read up to %d bytes only: over max_body", v.cfg.MaxBody)
	case res.ContentLength < 0:
		v.out.ContentLength = &n
	}
}

func (v *visit) accepted(res *http.Response) bool {
	return slices.ContainsFunc(v.accept, func(r statusRange) bool {
		return r.low <= res.StatusCode && res.StatusCode <= r.high
	})
}

// statusRange is a range of status codes, both ends included.
type statusRange struct{ low, high int }

func parseAccept(list []string) ([]statusRange, error) {
	if len(list) == 0 {
		return nil, errors.New("accept is empty: then no answer is fine")
	}
	out := make([]statusRange, len(list))
	for i, s := range list {
		first, last, isRange := strings.Cut(s, "-")
		if !isRange {
			last = first
		}
		low, err1 := strconv.Atoi(strings.TrimSpace(first))
		high, err2 := strconv.Atoi(strings.TrimSpace(last))
		if err1 != nil || err2 != nil || low < 100 || high > 999 || low > high {
			return nil, fmt.Errorf("accept %.40q: write status codes as 404 or 200-299", s)
		}
		out[i] = statusRange{low, high}
	}
	return out, nil
}

// describe returns the fields of a chain's first certificate for the output; nil for an empty chain.
func describe(chain []*x509.Certificate) *Cert {
	if len(chain) == 0 {
		return nil
	}
	leaf := chain[0]
	out := &Cert{
		DaysLeft: int(math.Floor(time.Until(leaf.NotAfter).Hours() / 24)),
		NotAfter: leaf.NotAfter.UTC(),
		Issuer:   clip(cmp.Or(leaf.Issuer.CommonName, leaf.Issuer.String())),
	}
	for _, name := range leaf.DNSNames[:min(len(leaf.DNSNames), 10)] {
		out.Names = append(out.Names, clip(name))
	}
	return out
}

// clip shortens a text of a server.
func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxText)], "") }
