package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
)

// TestMask: fields that a plugin or the config marks are for admins and for those who claim, wherever they are and
// however they are spelt.
func TestMask(t *testing.T) {
	s := newSite(t)
	s.api.Hide([]string{"email"})
	for _, k := range []ledger.Kind{{Name: "mail", Input: ledger.Input{Secret: []string{"password"}}}, {Name: "page"},
		{Name: "room", Input: ledger.Input{Secret: []string{"auth.token"}}}} {
		must.OK(t, s.l.SetKind(t.Context(), "ann", k))
	}
	const text = `{"to":[{"email":"ann@x"},{"em\u0061il":"bob@x"}],"password":"s3cret","n":12345678901234567890}`
	items := []ledger.NewItem{{Kind: "mail", Key: "m", Payload: []byte(text)},
		{Kind: "page", Key: "p", Payload: []byte(`{"password":"shown", "n":1.0}`)}}
	items = append(items, ledger.NewItem{Kind: "page", Key: "q", Payload: []byte(`{"to":[{"email":"zed@x"},{"email":"y@x"}]}`)},
		ledger.NewItem{Kind: "mail", Key: "r", Payload: []byte("{}\n" + `{"password":"s3cret"}`)},
		ledger.NewItem{Kind: "room", Key: "c", Payload: []byte(`{"auth":{"token":"s3cret"}}`)})
	must.Do(t)(s.l.Add(t.Context(), items...))
	sees := func(token, path string, shown, hidden []string, changes ...func(*http.Request)) {
		t.Helper()
		got := s.do(token, http.MethodGet, path, "", changes...)
		for _, word := range shown {
			if !strings.Contains(string(got.text), word) {
				t.Errorf("%s of %s has no %s: %s", path, token, word, got.text)
			}
		}
		for _, word := range hidden {
			if strings.Contains(string(got.text), word) {
				t.Errorf("%s of %s has %s: %s", path, token, word, got.text)
			}
		}
	}
	s.tokens["look"] = s.token("look", "read", "payload")
	secret := []string{"s3cret", "ann@x", "bob@x"}
	for _, path := range []string{"/items/1", "/items?where=kind:mail"} {
		sees("read", path, nil, append(secret, masked, "12345"))
		sees("look", path, []string{masked, "12345678901234567890"}, secret)
		sees("all", path, secret, []string{masked})
	}
	sees("look", "/items/5", []string{masked}, secret)
	lines := header("Accept", mediaLines)
	sees("look", "/items", []string{masked, `{"password":"shown","n":1.0}`}, secret, lines)
	for where, code := range map[string]string{"payload.password:s3cret": "scope", "payload.to.email~a": "scope",
		"kind:page payload.password:shown": "scope"} {
		path := "/items?where=" + strings.ReplaceAll(where, " ", "+")
		s.do("look", http.MethodGet, path, "").fails(http.StatusForbidden, code)
	}
	s.do("look", http.MethodGet, "/items/groups?by=payload.password", "").fails(http.StatusForbidden, "scope")
	s.do("read", http.MethodGet, "/items/groups?by=n", "").fails(http.StatusForbidden, "scope")
	sees("look", "/items/groups?by=to", []string{masked, `"left":2,`, `"groups":2,"whole":true`}, secret)
	sees("look", "/items/count?where=payload.to~ann@x", []string{`{"count":0,`}, nil)
	sees("all", "/items/count?where=payload.to~ann@x", []string{`{"count":1,`}, nil)
	sees("all", "/items/groups?by=password", []string{`{"value":"s3cret",`}, nil)
	var v any
	s.do("look", http.MethodGet, "/items?where=payload.n:1", "").ok(&v)
	s.do("all", http.MethodGet, "/items?where=payload.password:s3cret", "").ok(&v)
	if got := s.claim("work", `{"kind":"mail","agent":"w"}`, 1)[0]; !strings.Contains(string(got.Payload), "s3cret") {
		t.Errorf("a claim has no whole payload: %s", got.Payload)
	}
}

// TestPrefix: behind a proxy that leaves its prefix in the paths, or takes it away, links lead through the proxy.
func TestPrefix(t *testing.T) {
	s := newSite(t)
	s.api.Prefix = "/x/y"
	s.add("page", "a", "b")
	get := func(prefix, path string) *httptest.ResponseRecorder {
		r := s.request("all", http.MethodGet, path, "")
		r.URL.Path = prefix + r.URL.Path
		w := httptest.NewRecorder()
		s.api.ServeHTTP(w, r)
		return w
	}
	for _, prefix := range []string{"", "/x/y"} {
		got := get(prefix, "/items?limit=1")
		if link := got.Header().Get("Link"); got.Code != http.StatusOK || !strings.HasPrefix(link, "</x/y/api/v1/items?") {
			t.Errorf("%d, %s", got.Code, link)
		}
		if text := get(prefix, "/openapi.json").Body.String(); !strings.Contains(text, `"url": "/x/y/api/v1"`) {
			t.Errorf("%.200s", text)
		}
	}
	for _, prefix := range []string{"/x", "/x/y/x/y", "/X/y", "/x/y/..", "/x/yy"} {
		if got := get(prefix, "/items"); got.Code != http.StatusNotFound {
			t.Errorf("%s: %d", prefix, got.Code)
		}
	}
}

// TestNotFound: what is not there is named.
func TestNotFound(t *testing.T) {
	s := newSite(t)
	s.add("page", "a")
	for path, want := range map[string]string{"/items/77": "77", "/items/77/why": "77", "/items/77/attempts": "77",
		"/items/1/attempts/5/output": "attempt 5", "/kinds/nothing": `"nothing"`,
		"/acts/0198a9e4-0000-7000-8000-000000000009": "0198a9e4-0000-7000-8000-000000000009"} {
		p := s.do("all", http.MethodGet, path, "").fails(http.StatusNotFound, "not_found")
		if !strings.Contains(p.Detail, want) {
			t.Errorf("%s: %s", path, p.Detail)
		}
	}
	if p := s.do("mail", http.MethodGet, "/items/1", "").fails(http.StatusNotFound, "not_found"); p.Detail !=
		"there is no item 1" { // it is of a kind that the token may not see
		t.Errorf("%+v", p)
	}
}
