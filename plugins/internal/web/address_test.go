package web

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
)

func TestParseURL(t *testing.T) {
	for _, tt := range []struct{ base, ref, want, err string }{
		{"", "https://Example.COM", "https://example.com", ""},
		{"", "http://example.com:8080/a%20b?q=1#frag", "http://example.com:8080/a%20b?q=1", ""},
		{"", "https://bücher.example/ä", "https://xn--bcher-kva.example/%C3%A4", ""},
		{"", "http://a.example/a b?q=a b&c=é%20\"|+%zz", "http://a.example/a%20b?q=a%20b&c=%C3%A9%20%22|+%zz", ""},
		{"", "https://shop.example/100%-off%zz%%41%4?q=%zz", "https://shop.example/100%25-off%25zz%25%41%254?q=%25zz", ""},
		{"http://a.example/", "/50%", "http://a.example/50%25", ""},
		{"", "http://a.example/#50%", "http://a.example/", ""},
		{"http://a.example/", "?q=a b", "http://a.example/?q=a%20b", ""},
		{"", "http://[2606:4700::1]:81/", "http://[2606:4700::1]:81/", ""},
		{"", "http://a_b.example/", "http://a_b.example/", ""},
		{"", "http://1.2.3.4.example/", "http://1.2.3.4.example/", ""},
		{"http://a.example/x/y", "../z", "http://a.example/z", ""},
		{"http://a.example/x", "//b.example", "http://b.example", ""},
		{"http://u:p@a.example/x", "/y", "http://u:p@a.example/y", ""},
		{"http://u:p@a.example/x", "http://b.example/y", "http://b.example/y", ""},
		{"", "example.com/a", "", "write https://"},
		{"", "mailto:a@example.com", "", "only http and https"},
		{"", "http://u:secret@exa mple/", "", "invalid character"},
		{"", "http://a.example:port/", "", "invalid port"},
		{"", "http://a.example:65536/", "", "between 1 and 65535"},
		{"", "http://xn--\u00fc.example/", "", "not an international domain name"},
		{"", "http://a.example/" + strings.Repeat("a", MaxURL), "", "longer than 8192 bytes"},
	} {
		base := &url.URL{}
		if tt.base != "" {
			base, _ = url.Parse(tt.base)
		}
		got, err := ParseURL(base, tt.ref)
		switch {
		case tt.err == "" && (err != nil || got.String() != tt.want):
			t.Errorf("%.60s: got %v, %v, want %s", tt.ref, got, err, tt.want)
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err) ||
			strings.Contains(err.Error(), "secret")):
			t.Errorf("%.60s: got %v, %v, want an error with %q", tt.ref, got, err, tt.err)
		}
	}
}

// A password goes to where it was given for, and from http to https there.
func TestFollowWithPassword(t *testing.T) {
	for _, tt := range []struct{ from, location, want string }{
		{"http://u:p@a.example/x", "/y", "http://u:p@a.example/y"},
		{"http://u:p@a.example/x", "http://A.example:80/y", "http://u:p@a.example:80/y"},
		{"http://u:p@a.example/x", "//a.example/y", "http://u:p@a.example/y"},
		{"http://u:p@a.example:81/x", "http://a.example:81/y", "http://u:p@a.example:81/y"},
		{"http://u:p@[2606::1]:80/x", "https://[2606::1]/y", "https://u:p@[2606::1]/y"},
		{"http://u:p@a.example/x", "http://v:q@a.example/y", "http://v:q@a.example/y"},
		{"http://u:p@a.example/x", "http://b.example/y", "http://b.example/y"},
		{"http://u:p@a.example/x", "http://www.a.example/y", "http://www.a.example/y"},
		{"http://u:p@a.example/x", "http://a.example:81/y", "http://a.example:81/y"},
		{"http://u:p@a.example/x", "https://b.example/y", "https://b.example/y"},
		{"http://u:p@a.example/x", "https://a.example:444/y", "https://a.example:444/y"},
		{"http://u:p@a.example:443/x", "https://a.example/y", "https://a.example/y"},
		{"https://u:p@a.example/x", "http://a.example/y", "http://a.example/y"},
		{"https://u:p@a.example/x", "http://a.example:443/y", "http://a.example:443/y"},
	} {
		from, err := url.Parse(tt.from)
		must.OK(t, err)
		to, err := NewPath().Follow(from, &http.Response{Header: http.Header{"Location": {tt.location}}})
		if err != nil || to.String() != tt.want {
			t.Errorf("from %s to %s: %v, %v", tt.from, tt.location, to, err)
		}
	}
}
