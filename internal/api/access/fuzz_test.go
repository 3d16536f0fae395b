package access

import (
	"net/http"
	"strings"
	"testing"
)

// FuzzToken: a text is a token only as NewToken writes it, and only the token of the config is let in.
func FuzzToken(f *testing.F) {
	real := NewToken()
	for _, text := range []string{"", "ldg_", real, strings.ToUpper(real), real + "=", "Bearer " + real} {
		f.Add(text)
	}
	grant := Grant{Name: "real", Scopes: []Scope{Read}}
	f.Fuzz(func(t *testing.T, text string) {
		if IsToken(text) && (len(text) != len(real) || strings.ToLower(text) != text) {
			t.Errorf("%q is a token", text)
		}
		g := NewGuard("127.0.0.1:1", nil, []Token{{Grant: grant, Hash: Hash(real)}}, false)
		r := &http.Request{Header: http.Header{"Authorization": {"Bearer " + text}}, RemoteAddr: text}
		got, err := g.Login(r)
		if (err == nil) != (strings.TrimSpace(text) == real) || err == nil && got.Name != grant.Name {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	})
}
