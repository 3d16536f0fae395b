package web

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"github.com/ledgerd/ledgerd/internal/lazyregexp"
)

// MaxURL is the most bytes that a URL may have.
const MaxURL = 8 << 10

// notInQuery matches characters that are encoded in a query. A query that is encoded already stays as it is.
var notInQuery = lazyregexp.New(`[^!-~]|["<>]`)

// percent matches a % and, if it encodes a character, the number of the character.
var percent = lazyregexp.New(`%([\dA-Fa-f]{2})?`)

// ParseURL parses a URL, relative to base, and refuses a URL that cannot be requested.
func ParseURL(base *url.URL, ref string) (*url.URL, error) {
	if len(ref) > MaxURL {
		return nil, fmt.Errorf("longer than %d bytes", MaxURL)
	}
	u, err := base.Parse(strings.TrimSpace(ref))
	if _, ok := errors.AsType[url.EscapeError](err); ok { // browsers ask for such a path, too
		u, err = base.Parse(percent().ReplaceAllStringFunc(strings.TrimSpace(ref), func(s string) string {
			return "%" + cmp.Or(s[1:], "25")
		}))
	}
	if err != nil {
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err // without the URL: it may hold a password
		}
		return nil, err
	}
	switch {
	case u.Scheme == "":
		return nil, errors.New("no scheme: write https://…")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("scheme %.40q: only http and https are understood", u.Scheme)
	case u.Hostname() == "":
		return nil, errors.New("no host")
	}
	name, err := hostname(u.Hostname())
	if err != nil {
		return nil, err
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, fmt.Errorf("port %.20q: not between 1 and 65535", port)
		}
	}
	u.Host = strings.Replace(u.Host, u.Hostname(), name, 1)
	u.RawQuery = notInQuery().ReplaceAllStringFunc(u.RawQuery, url.PathEscape)
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

// hostname converts a host to the form that is looked up and compared. Some resolvers read a host that ends
// in a number as an IPv4 address, such as 0x7f.1 or 2130706433, so only the usual form of an address is accepted.
func hostname(name string) (string, error) {
	if strings.ContainsFunc(name, func(r rune) bool { return r >= utf8.RuneSelf }) {
		ascii, err := idna.Lookup.ToASCII(name)
		if err != nil {
			return "", fmt.Errorf("host %.100q: not an international domain name", name)
		}
		name = ascii
	}
	name = strings.ToLower(name)
	if _, err := netip.ParseAddr(name); err == nil {
		return name, nil
	}
	last := strings.TrimSuffix(name, ".")
	last = last[strings.LastIndexByte(last, '.')+1:]
	hex, isHex := strings.CutPrefix(last, "0x")
	if last != "" && strings.Trim(last, "0123456789") == "" || isHex && strings.Trim(hex, "0123456789abcdef") == "" {
		return "", fmt.Errorf("host %.100q: write an IPv4 address as four decimal numbers", name)
	}
	return name, nil
}

// authority is host:port of a URL, also for the default port. It is the name of a host in hosts.
func authority(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// special are the IPv4 addresses, and those inside 2000::/3, that are not public by IANA's
// special-purpose registries, and an address at which a cloud (Azure) answers only its own machines.
var special = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
	"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
	"198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"168.63.129.16/32",
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)

var (
	globalUnicast = netip.MustParsePrefix("2000::/3")
	nat64         = netip.MustParsePrefix("64:ff9b::/96")
)

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// Public reports whether the address is public. IPv4 inside IPv6, mapped or for NAT64, counts as
// the IPv4 address.
func Public(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	if a.Is6() && !globalUnicast.Contains(a) {
		return false
	}
	return !slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(a) })
}

// PrivateError means that Addr was not dialled, because it is not public.
type PrivateError struct{ Addr string }

func (e *PrivateError) Error() string {
	return fmt.Sprintf("%s is not a public address; to ask there use --with allow_private=true", e.Addr)
}

// refusePrivate is a net.Dialer's Control: it sees the address that is about to be dialled.
func refusePrivate(_, address string, _ syscall.RawConn) error {
	if ap, err := netip.ParseAddrPort(address); err != nil || !Public(ap.Addr()) {
		return &PrivateError{Addr: address}
	}
	return nil
}
