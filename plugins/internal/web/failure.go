package web

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/http2"

	"github.com/ledgerd/ledgerd/internal/lazyregexp"
	"github.com/ledgerd/ledgerd/plugins/internal/failure"
	"github.com/ledgerd/ledgerd/sdk"
)

// Report translates the errors of this package for the SDK: a *failure.Error, and a *Busy (a snooze, no failure). Other
// errors stay what they are.
func Report(err error) error {
	if b, ok := errors.AsType[*Busy](err); ok {
		if b.refusal != nil {
			return sdk.SnoozeAtMost(maxRefusals, b.Wait, sdk.Code(b.refusal.Code, b))
		}
		return sdk.Snooze(b.Wait, b.Error())
	}
	return failure.Report(err)
}

// ErrDeadline means that the deadline of a request has passed.
var ErrDeadline = errors.New("no answer in time")

// closedIdle ends the text of net/http's error for a server that closed the connection after it was accepted and
// before anything was sent. The error itself is not exported.
const closedIdle = "http: server closed idle connection"

// goneHTTP2 is the text of net/http's errors for a server that closes a connection of HTTP/2, or does not answer on it.
// They are not exported either.
var goneHTTP2 = lazyregexp.New(`(^|: )http2: (client connection lost|.*\bGOAWAY\b)`)

// Classify names the class of an error of the transport. It looks at the inner errors as far as there are any, because
// texts differ between systems.
func Classify(err error) *failure.Error {
	if f, ok := errors.AsType[*failure.Error](err); ok { // the proxy's, see NewClient
		return f
	}
	op, isOp := errors.AsType[*net.OpError](err)
	if isOp && op.Op == "proxyconnect" { // its causes are the proxy's, not the URL's
		return failure.Transient("proxy", err)
	}
	if private, ok := errors.AsType[*PrivateError](err); ok {
		return failure.Permanent("private_address", private)
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsNotFound {
			return failure.Permanent("no_such_host", fmt.Errorf("no such host: %s", dns.Name))
		}
		return failure.Transient("dns", fmt.Errorf("looking up %s: %s", dns.Name, dns.Err))
	}
	if cert, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return failure.Permanent(certCode(cert.Err), cert.Err)
	}
	is := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(t error) bool { return errors.Is(err, t) })
	}
	timeout, isNet := errors.AsType[net.Error](err)
	_, inHandshake := errors.AsType[*handshakeError](err)
	stream, isStream := errors.AsType[http2.StreamError](err) // net/http's own type converts itself by its method As
	switch {
	case isNet && timeout.Timeout(), is(ErrDeadline):
		return failure.Transient("timeout", err)
	case is(syscall.ECONNREFUSED):
		return failure.Transient("refused", err)
	case is(syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE):
		return failure.Transient("reset", err)
	case is(io.EOF, io.ErrUnexpectedEOF), strings.HasSuffix(err.Error(), closedIdle):
		return failure.Transient("reset", fmt.Errorf("the server closed the connection without an answer: %w", err))
	case isStream && stream.Code != http2.ErrCodeProtocol, goneHTTP2().MatchString(err.Error()):
		return failure.Transient("reset", err)
	case is(syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ENETDOWN):
		return failure.Transient("unreachable", err)
	// With TLS 1.3 the server's alert may come after the handshake.
	case inHandshake, isOp && (op.Op == "remote error" || op.Op == "local error"):
		return failure.Permanent("tls", err)
	case isOp && op.Op == "socks connect":
		return failure.Transient("proxy", err)
	case isOp:
		return failure.Transient("network", err)
	}
	return failure.Permanent("bad_response", err)
}

func certCode(err error) string {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return "tls_expired"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "tls_hostname"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "tls_untrusted"
	}
	return "tls"
}

// maxRetryAfter is how long a URL is put off at most.
const maxRetryAfter = 24 * time.Hour

// StatusError returns the failure of an answer because of its status.
func StatusError(res *http.Response) *failure.Error {
	s := res.StatusCode
	f := failure.Permanent(fmt.Sprintf("http_%d", s),
		errors.New(strings.TrimSpace(fmt.Sprintf("status %d %s", s, http.StatusText(s)))))
	if after := RetryAfter(res); retryable(s) || after > 0 {
		f.Fate, f.After = failure.Again, after
	}
	return f
}

// retryable reports whether a status may differ for another request.
func retryable(s int) bool {
	return s == http.StatusRequestTimeout || s == http.StatusTooEarly || s == http.StatusTooManyRequests || 500 <= s &&
		s <= 599
}

// Refuses reports whether the host refuses because it is asked too much.
func Refuses(res *http.Response) bool {
	return res.StatusCode == http.StatusTooManyRequests || RetryAfter(res) > 0
}

// RetryAfter is how long a server that refuses asks to wait, at most a day; 0 if it does not ask. It asks by
// Retry-After, in seconds or by a date. If its limit is exhausted, it asks by the time at which that is reset
// (X-RateLimit-Reset and similar names): in seconds from now, or since 1970. Some servers answer with 403 then. Times
// count from the answer's Date, as the clock of the server may differ.
func RetryAfter(res *http.Response) time.Duration {
	s, exhausted := res.StatusCode, limitField(res.Header, "Remaining") == "0"
	if !retryable(s) && s != http.StatusForbidden {
		return 0
	}
	now, err := http.ParseTime(res.Header.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	value := res.Header.Get("Retry-After")
	if at, err := http.ParseTime(value); err == nil {
		return bounded(at.Sub(now))
	}
	if after := secondsOf(value); after > 0 {
		return after
	}
	if !exhausted && s != http.StatusTooManyRequests {
		return 0
	}
	// Below 1e9 it is seconds from now, as no server asks for 30 years; from 1e12 on it is milliseconds.
	const since1970, milliseconds = 1e9, 1e12
	switch reset, _ := strconv.ParseInt(limitField(res.Header, "Reset"), 10, 64); {
	case reset > milliseconds:
		return bounded(time.UnixMilli(reset).Sub(now))
	case reset > since1970:
		return bounded(time.Unix(reset, 0).Sub(now))
	default:
		return bounded(time.Duration(reset) * time.Second)
	}
}

// limitField is a field about the limit of requests, by the names that are in use.
func limitField(h http.Header, name string) string {
	return cmp.Or(h.Get("X-RateLimit-"+name), h.Get("RateLimit-"+name), h.Get("X-Rate-Limit-"+name))
}

func secondsOf(text string) time.Duration {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0
	}
	return time.Duration(min(n, uint64(maxRetryAfter/time.Second))) * time.Second
}

func bounded(d time.Duration) time.Duration {
	return min(max(d, 0), maxRetryAfter).Round(time.Millisecond)
}
