package web

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

	"github.com/ledgerd/ledgerd/sdk"
)

// Failure is why a URL did not give what was asked of it.
type Failure struct {
	Code  string
	Retry bool          // trying again can help
	After time.Duration // but not before; 0 leaves it to the kind's policy
	Err   error
}

func (f *Failure) Error() string { return fmt.Sprintf("%.300s", f.Err) } // servers write part of it
func (f *Failure) Unwrap() error { return f.Err }

// Permanent is a failure that would come again.
func Permanent(code string, err error) *Failure { return &Failure{Code: code, Err: err} }

// Transient is a failure that may go away.
func Transient(code string, err error) *Failure { return &Failure{Code: code, Err: err, Retry: true} }

// Report puts a *Failure into the words of the SDK; other errors stay what they are.
func Report(err error) error {
	f, ok := errors.AsType[*Failure](err)
	if !ok {
		return err
	}
	coded := sdk.Code(f.Code, f)
	switch {
	case !f.Retry:
		return sdk.Permanent(coded)
	case f.After > 0:
		return sdk.RetryAfter(f.After, coded)
	}
	return coded
}

// ErrDeadline says that this request got no more time.
var ErrDeadline = errors.New("no answer in time")

// closedIdle ends the text of net/http's error for a server that closed the connection after it was accepted and
// before anything was sent. The error itself is not exported.
const closedIdle = "http: server closed idle connection"

// Classify names the class of an error of the transport. The inner errors are looked at, not
// texts, which differ between systems, as far as there are any.
func Classify(err error, inHandshake bool) *Failure {
	if f, ok := errors.AsType[*Failure](err); ok { // the proxy's, see Reach.Transport
		return f
	}
	if private, ok := errors.AsType[*PrivateError](err); ok {
		return Permanent("private_address", private)
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsNotFound {
			return Permanent("no_such_host", fmt.Errorf("no such host: %s", dns.Name))
		}
		return Transient("dns", fmt.Errorf("looking up %s: %s", dns.Name, dns.Err))
	}
	if cert, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return Permanent(certCode(cert.Err), cert.Err)
	}
	is := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(t error) bool { return errors.Is(err, t) })
	}
	timeout, isNet := errors.AsType[net.Error](err)
	op, isOp := errors.AsType[*net.OpError](err)
	switch {
	case isOp && op.Op == "proxyconnect":
		return Transient("proxy", err)
	case isNet && timeout.Timeout(), is(ErrDeadline):
		return Transient("timeout", err)
	case is(syscall.ECONNREFUSED):
		return Transient("refused", err)
	case is(syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE):
		return Transient("reset", err)
	case is(io.EOF, io.ErrUnexpectedEOF), strings.HasSuffix(err.Error(), closedIdle):
		return Transient("reset", fmt.Errorf("the server closed the connection without an answer: %w", err))
	case is(syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ENETDOWN):
		return Transient("unreachable", err)
	case inHandshake, isOp && (op.Op == "remote error" || op.Op == "local error"): // so crypto/tls says it later on
		return Permanent("tls", err)
	case isOp:
		return Transient("network", err)
	}
	return Permanent("bad_response", err)
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

// NotAccepted is the failure of a complete answer; Retry-After is honoured up to most.
func NotAccepted(res *http.Response, most time.Duration) *Failure {
	s := res.StatusCode
	f := &Failure{
		Code:  fmt.Sprintf("http_%d", s),
		Retry: s == http.StatusRequestTimeout || s == http.StatusTooEarly || s == http.StatusTooManyRequests || 500 <= s && s <= 599,
		Err:   errors.New(strings.TrimSpace(fmt.Sprintf("status %d %s", s, http.StatusText(s)))),
	}
	if f.Retry {
		f.After = RetryAfter(res.Header, most)
	}
	return f
}

// RetryAfter reads the header of that name, seconds or a date; 0 without a sensible one, at most
// most.
func RetryAfter(h http.Header, most time.Duration) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, uint64(most/time.Second))) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(time.Until(at), 0), most).Round(time.Millisecond)
}
