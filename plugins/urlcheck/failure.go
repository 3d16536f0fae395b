package urlcheck

import (
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
)

const maxRetryAfter = time.Hour

// failure is why a URL was not accepted.
type failure struct {
	code  string
	retry bool          // trying again can help
	after time.Duration // but not before; 0 leaves it to the kind's policy
	err   error
}

func (f *failure) Error() string { return fmt.Sprintf("%.300s", f.err) } // servers write part of it
func (f *failure) Unwrap() error { return f.err }

func permanent(code string, err error) *failure { return &failure{code: code, err: err} }
func transient(code string, err error) *failure { return &failure{code: code, err: err, retry: true} }

// errDeadline says that this request got no more time.
var errDeadline = errors.New("no answer in time")

// classify names the class of an error of the transport. The inner errors are looked at, not
// texts, which differ between systems.
func classify(err error, inHandshake bool) *failure {
	if f, ok := errors.AsType[*failure](err); ok { // the proxy's, see newChecker
		return f
	}
	if private, ok := errors.AsType[*privateError](err); ok {
		return permanent("private_address", private)
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsNotFound {
			return permanent("no_such_host", fmt.Errorf("no such host: %s", dns.Name))
		}
		return transient("dns", fmt.Errorf("looking up %s: %s", dns.Name, dns.Err))
	}
	if cert, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return permanent(certCode(cert.Err), cert.Err)
	}
	is := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(t error) bool { return errors.Is(err, t) })
	}
	timeout, isNet := errors.AsType[net.Error](err)
	op, isOp := errors.AsType[*net.OpError](err)
	switch {
	case isOp && op.Op == "proxyconnect":
		return transient("proxy", err)
	case isNet && timeout.Timeout(), is(errDeadline):
		return transient("timeout", err)
	case is(syscall.ECONNREFUSED):
		return transient("refused", err)
	case is(syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE):
		return transient("reset", err)
	case is(io.EOF, io.ErrUnexpectedEOF):
		return transient("reset", fmt.Errorf("the server closed the connection without an answer: %w", err))
	case is(syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ENETDOWN):
		return transient("unreachable", err)
	case inHandshake, isOp && (op.Op == "remote error" || op.Op == "local error"): // so crypto/tls says it later on
		return permanent("tls", err)
	case isOp:
		return transient("network", err)
	}
	return permanent("bad_response", err)
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

// notAccepted is the failure of a complete answer.
func notAccepted(res *http.Response) *failure {
	s := res.StatusCode
	f := &failure{
		code:  fmt.Sprintf("http_%d", s),
		retry: s == http.StatusRequestTimeout || s == http.StatusTooEarly || s == http.StatusTooManyRequests || 500 <= s && s <= 599,
		err:   errors.New(strings.TrimSpace(fmt.Sprintf("status %d %s", s, http.StatusText(s)))),
	}
	if f.retry {
		f.after = retryAfter(res.Header)
	}
	return f
}

// retryAfter reads the header Retry-After, seconds or a date; 0 without a sensible one, at
// most an hour.
func retryAfter(h http.Header) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, uint64(maxRetryAfter/time.Second))) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(time.Until(at), 0), maxRetryAfter).Round(time.Millisecond)
}
