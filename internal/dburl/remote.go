package dburl

import (
	"net/netip"
	"net/url"
	"strings"

	"github.com/ledgerd/ledgerd/sdk/redact"
)

// IsRemote reports whether a text begins with http:// or https://. ParseRemote checks the rest.
func IsRemote(text string) bool {
	scheme, _, found := strings.Cut(text, "://")
	return found && (strings.EqualFold(scheme, "https") || strings.EqualFold(scheme, "http"))
}

// Remote is the URL of a server with the HTTP API of a ledger, with the prefix of a proxy and without /api/v1.
type Remote string

// ParseRemote reads the URL of a server. It allows http:// only for this machine, because a token that goes over a
// network without TLS can be read there. The error is an *Error; source names the origin of the URL.
func ParseRemote(text, source string) (Remote, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "":
		return "", &Error{Message: source + ` "` + redact.Text(text) + `": not the URL of an HTTP API`,
			Hint: "it is https://host/prefix, or http://127.0.0.1:7374 on this machine"}
	case u.User != nil:
		return "", &Error{Message: source + ": a URL of an HTTP API has no user and no password",
			Hint: "it takes a token: LEDGERD_TOKEN, or --token-file"}
	case u.RawQuery != "" || u.Fragment != "":
		return "", &Error{Message: source + ` "` + redact.Text(text) + `": the URL ends with the path`,
			Hint: "it is https://host/prefix"}
	case u.Scheme != "https" && !loopback(u.Hostname()):
		return "", &Error{Message: source + ` "` + redact.Text(text) + `": over a network the token could be read`,
			Hint: "take https://; http:// is for this machine alone: http://127.0.0.1:7374"}
	}
	return Remote(strings.TrimSuffix(strings.TrimSuffix(u.String(), "/"), "/api/v1")), nil
}

// loopback reports whether a host is this machine.
func loopback(host string) bool {
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || err == nil && ip.IsLoopback()
}

func (r Remote) String() string { return string(r) }

// Brief is the URL.
func (r Remote) Brief() string { return string(r) }

// Check refuses, with an *Error, a text that is no URL of a ledger, neither in a database nor over HTTP.
func Check(text, source string) (err error) {
	if IsRemote(text) {
		_, err = ParseRemote(text, source)
		return err
	}
	_, err = Parse(text, source)
	if bad, ok := err.(*Error); ok && !strings.Contains(bad.Hint, "%XX") {
		return &Error{Message: bad.Message, Hint: bad.Hint + ", an HTTP API is https://host/prefix"}
	}
	return err
}
