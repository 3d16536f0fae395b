package intake

import (
	"cmp"
	"errors"
	"net"
	"net/url"
	"strings"

	"github.com/ledgerd/ledgerd/internal/lazyregexp"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

// Address is a URL in its normal form.
type Address struct{ u *url.URL }

// defaultPorts are left out of keys.
var defaultPorts = map[string]string{"http": "80", "https": "443", "ftp": "21", "ws": "80", "wss": "443"}

// notInQuery matches the characters that a query in a request cannot have. They are encoded, so that both spellings are
// one key.
var notInQuery = lazyregexp.New(`[^!-~]|["<>]`)

// notInPath is notInQuery for paths and fragments. With one of these in them, package url would encode the whole anew.
var notInPath = lazyregexp.New("[^!-~]|[\"#<>\\\\^`{|}]")

// ParseURL parses an absolute URL and brings it into its normal form: scheme and host in lower case, no default port,
// "/" for an empty path, and %XX for characters that a request cannot have. Everything else stays as written, the
// fragment too. The error is an *ArgError and shows no password.
func ParseURL(text string) (Address, error) {
	text = trim(text)
	u, err := url.Parse(text)
	switch {
	case errors.As(err, new(url.EscapeError)):
		e := malformed(text, `has a "%" without two hexadecimal digits behind it`)
		e.Hint = `write "%" itself as %25`
		return Address{}, e
	case err != nil:
		return Address{}, malformed(text, "is not a URL")
	case u.Scheme == "":
		e := malformed(text, "is neither a URL nor a file that exists")
		if !strings.ContainsAny(text, " /\\") || strings.Contains(text, ".") && !strings.HasPrefix(text, "/") &&
			!strings.HasPrefix(text, ".") {
			e.Hint = "a URL begins with https:// or http://"
		}
		return Address{}, e
	case u.Hostname() == "":
		return Address{}, malformed(text, "is a URL without a host")
	case strings.Contains(u.Hostname(), ":") && !strings.HasPrefix(u.Host, "["):
		return Address{}, malformed(text, "is a URL with several ports; an IPv6 address stands in brackets")
	}
	u.Scheme = strings.ToLower(u.Scheme)
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if port == defaultPorts[u.Scheme] {
		port = ""
	}
	switch {
	case port != "":
		u.Host = net.JoinHostPort(host, port)
	case strings.Contains(host, ":"): // IPv6
		u.Host = "[" + host + "]"
	default:
		u.Host = host
	}
	u.Path = cmp.Or(u.Path, "/")
	u.RawPath = notInPath().ReplaceAllStringFunc(u.RawPath, url.PathEscape)
	u.RawFragment = notInPath().ReplaceAllStringFunc(u.RawFragment, url.PathEscape)
	u.RawQuery = notInQuery().ReplaceAllStringFunc(u.RawQuery, url.PathEscape)
	return Address{u}, nil
}

func malformed(text, reason string) *ArgError {
	return &ArgError{Input: shorten(redact.Text(text)), Reason: reason}
}

// String returns the whole URL.
func (a Address) String() string { return a.u.String() }

// Key returns the URL without its password: it is no part of what the URL names and must not be seen in lists.
func (a Address) Key() string {
	if _, has := a.u.User.Password(); !has {
		return a.u.String()
	}
	bare := *a.u
	bare.User = url.User(a.u.User.Username())
	return bare.String()
}

// Host returns the name and port of the server. All items of the server share it.
func (a Address) Host() string { return a.u.Host }
