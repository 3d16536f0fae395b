package intake

import "testing"

func TestParseURL(t *testing.T) {
	for _, test := range []struct{ in, key, whole, host string }{
		{"HTTP://Example.COM", "http://example.com/", "http://example.com/", "example.com"},
		{" https://example.com:443/a?b=C#frag ", "https://example.com/a?b=C#frag", "https://example.com/a?b=C#frag",
			"example.com"},
		{"http://example.com:8080", "http://example.com:8080/", "http://example.com:8080/", "example.com:8080"},
		{"http://[::1]:80/x", "http://[::1]/x", "http://[::1]/x", "[::1]"},
		{"http://[::1]:81/x", "http://[::1]:81/x", "http://[::1]:81/x", "[::1]:81"},
		{"https://ann:secret@h/x", "https://ann@h/x", "https://ann:secret@h/x", "h"},
		{"https://ann@h/%41?", "https://ann@h/%41?", "https://ann@h/%41?", "h"},
		{"http://h/a b?q=a b&é", "http://h/a%20b?q=a%20b&%C3%A9", "http://h/a%20b?q=a%20b&%C3%A9", "h"},
		{"http://h/a%20b?q=a%20b&%C3%A9", "http://h/a%20b?q=a%20b&%C3%A9", "http://h/a%20b?q=a%20b&%C3%A9", "h"},
		{"http://h/é%2Fx", "http://h/%C3%A9%2Fx", "http://h/%C3%A9%2Fx", "h"},
		{"http://h/Köln_(Stadt)", "http://h/K%C3%B6ln_(Stadt)", "http://h/K%C3%B6ln_(Stadt)", "h"},
		{"http://h/a{b|c%3B", "http://h/a%7Bb%7Cc%3B", "http://h/a%7Bb%7Cc%3B", "h"},
		{"http://h/#é%2Fx(1)", "http://h/#%C3%A9%2Fx(1)", "http://h/#%C3%A9%2Fx(1)", "h"},
		{"http://example.com:/", "http://example.com/", "http://example.com/", "example.com"},
	} {
		u, err := ParseURL(test.in)
		if err != nil {
			t.Errorf("%s: %v", test.in, err)
			continue
		}
		if u.Key() != test.key || u.String() != test.whole || u.Host() != test.host {
			t.Errorf("%s: key %s, whole %s, host %s", test.in, u.Key(), u.String(), u.Host())
		}
	}
	for in, hint := range map[string]string{
		"example.com/a": "a URL begins with https:// or http://", "./links": "", "mailto:a@b": "", "http://a b/": "",
		"http://h:port/": "", "http://h/100%": `write "%" itself as %25`,
	} {
		_, err := ParseURL(in)
		if ae, ok := err.(*ArgError); !ok || ae.Hint != hint {
			t.Errorf("%s: %#v", in, err)
		}
	}
}
