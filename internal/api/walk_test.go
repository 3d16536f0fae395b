package api

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/failure"
)

// example is a path of a route.
func example(r Route) string {
	return strings.NewReplacer("{id}", "1", "{attempt}", "1", "{kind}", "page",
		"{uuid}", "0198a9e4-0000-7000-8000-000000000001").Replace(r.Path)
}

// TestEveryRouteIsGuarded walks the table: a wrong Host, a page of another site, another environment, no token, a token
// without the scope, and a body that is too large are refused before anything else is looked at.
func TestEveryRouteIsGuarded(t *testing.T) {
	s := newSite(t)
	for _, r := range table() {
		path := example(r)
		do := func(token, body string, changes ...func(*http.Request)) reply {
			if r.out == reflect.TypeFor[stream]() || r.out == reflect.TypeFor[hints]() { // it would go on
				gone, end := context.WithCancel(t.Context())
				end()
				changes = append(changes, func(r *http.Request) { *r = *r.WithContext(gone) })
			}
			return s.do(token, r.Method, path, body, changes...)
		}
		wrong := []string{"evil.example", "127.0.0.1.evil.example:7374", "", "[::2]:7374"}
		right := []string{"LEDGER.example", address, "localhost:7374", "ledger.example.:443", "[::1]:7374"}
		if r.Path != "/items" { // one route has them all
			wrong, right = wrong[:1], right[:1]
		}
		for _, name := range wrong {
			do("all", "", host(name)).fails(http.StatusMisdirectedRequest, "wrong_host")
		}
		for _, from := range []string{"cross-site", "same-site"} {
			do("all", "", header("Sec-Fetch-Site", from)).fails(http.StatusForbidden, "cross_site")
		}
		do("all", "", header("Origin", "http://evil.example")).fails(http.StatusForbidden, "cross_site")
		do("all", "", header("Ledgerd-Environment", "staging")).fails(http.StatusForbidden, "environment")
		for _, name := range right {
			if got := do("all", "", host(name)); got.StatusCode == http.StatusMisdirectedRequest {
				t.Errorf("%s %s as %s: %s", r.Method, path, name, got.text)
			}
		}
		do("all", strings.Repeat(" ", int(r.MaxBody)+1)).fails(http.StatusRequestEntityTooLarge, "too_large")
		if r.Scope == "" {
			continue
		}
		unread := func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(notRead{t}), 100 }
		do("", "", unread).fails(http.StatusUnauthorized, "unauthorized")
		do("none", "").fails(http.StatusForbidden, "scope")
		for _, scope := range access.Scopes {
			if scope != r.Scope && scope != access.Admin {
				do(string(scope), "").fails(http.StatusForbidden, "scope")
			}
		}
		if r.AllKinds {
			do("mail", "").fails(http.StatusForbidden, "scope")
		}
	}
}

// notRead is a body that nothing may read.
type notRead struct{ t *testing.T }

func (n notRead) Read([]byte) (int, error) {
	n.t.Error("a body was read before the token was checked")
	return 0, io.EOF
}

// TestDescription: openapi.json has the routes of the table and no others, and what is refused is refused as it is
// described.
func TestDescription(t *testing.T) {
	s := newSite(t)
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			OperationID string
			Responses   map[string]any
		}
	}
	s.do("", http.MethodGet, "/openapi.json", "").ok(&doc)
	if doc.OpenAPI != "3.1.0" {
		t.Errorf("it is OpenAPI %s", doc.OpenAPI)
	}
	found := 0
	for _, methods := range doc.Paths {
		found += len(methods)
	}
	var names []string
	for _, r := range described() {
		op, there := doc.Paths[r.Path][strings.ToLower(r.Method)]
		if !there || len(op.Responses) < 5 {
			t.Errorf("%s %s is not described: %+v", r.Method, r.Path, op)
		}
		if op.OperationID == "" || slices.Contains(names, op.OperationID) {
			t.Errorf("%s %s has no name of its own: %q", r.Method, r.Path, op.OperationID)
		}
		names = append(names, op.OperationID)
		for _, code := range r.errorCodes() {
			if codes[code].status == 0 {
				t.Errorf("%s %s has the code %s, which is not described", r.Method, r.Path, code)
			}
		}
	}
	if found != len(described()) {
		t.Errorf("%d operations are described, there are %d routes", found, len(described()))
	}
}

func TestUnknownPaths(t *testing.T) {
	s := newSite(t)
	for _, path := range []string{"/", "/item", "/items/1/", "/items//why", "/../version"} {
		if got := s.do("all", http.MethodGet, path, ""); got.StatusCode != http.StatusNotFound &&
			got.StatusCode/100 != 3 {
			t.Errorf("%s: %d %s", path, got.StatusCode, got.text)
		}
	}
	s.do("all", http.MethodDelete, "/version", "").fails(http.StatusMethodNotAllowed, "bad_method")
	for _, c := range []struct{ path, field string }{{"/version?x=1", "x"}, {"/items?limt=2", "limt"},
		{"/items?limit=0", "limit"}, {"/items?limit=many", "limit"}, {"/items?order=key", "order"}, {"/items/x", "id"},
		{"/items?limit=1&limit=2", "limit"}, {"/items?output=maybe", "output"}, {"/items?%zz", ""}} {
		if p := s.do("all", http.MethodGet, c.path, "").fails(http.StatusBadRequest, "bad_request"); p.Field != c.field {
			t.Errorf("%s: %+v", c.path, p)
		}
	}
	if p := s.do("all", http.MethodGet, "/items?limt=2", "").fails(http.StatusBadRequest,
		"bad_request"); p.Hint != "did you mean limit?" {
		t.Errorf("%+v", p)
	}
}

// TestLogins: a wrong token is told from a mistyped one, the sixth one in a minute gets 429, and right ones are taken
// all the same.
func TestLogins(t *testing.T) {
	s := newSite(t)
	for i := range 7 {
		token := access.NewToken()
		if i == 1 {
			token = token[:20]
		}
		got := s.do("", http.MethodGet, "/items", "", header("Authorization", "Bearer "+token))
		if i < 5 {
			if p := got.fails(http.StatusUnauthorized, "unauthorized"); strings.Contains(p.Hint, "whole") != (i == 1) ||
				got.Header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%d: %+v", i, p)
			}
		} else {
			got.fails(http.StatusTooManyRequests, "too_many_logins")
			if got.Header.Get("Retry-After") != "12" {
				t.Errorf("Retry-After is %q", got.Header.Get("Retry-After"))
			}
		}
		if strings.Contains(string(got.text), token) {
			t.Errorf("the token is in the answer: %s", got.text)
		}
	}
	if p, retry := problemOf(failure.Usage("too_many", "", "")); p.Status != http.StatusTooManyRequests || retry != 1 {
		t.Errorf("%+v, again after %d s", p, retry)
	}
	var v any
	s.do("read", http.MethodGet, "/items", "").ok(&v)
	s.do("", http.MethodGet, "/items", "", header("Authorization", "Basic "+s.tokens["read"])).fails(
		http.StatusTooManyRequests, "too_many_logins")
}

// TestMe: who asks is told what the token may do; admin is every scope.
func TestMe(t *testing.T) {
	s := newSite(t)
	for token, want := range map[string]answer.Me{
		"read": {Name: "read", Scopes: []string{"read"}, Kinds: []string{}},
		"mail": {Name: "mail", Scopes: []string{"read", "payload", "add", "work", "operate", "admin"},
			Kinds: []string{"mail"}, Agent: "box-"},
	} {
		var got answer.Me
		if s.do(token, http.MethodGet, "/me", "").ok(&got); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// TestHeaders: no answer can be shown as a page, and an answer that has not changed is not sent again.
func TestHeaders(t *testing.T) {
	s := newSite(t)
	got := s.do("", http.MethodGet, "/version", "")
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff",
		"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'", "Content-Type": mediaJSON} {
		if got.Header.Get(name) != want {
			t.Errorf("%s: %q", name, got.Header.Get(name))
		}
	}
	tag := got.Header.Get("ETag")
	for have, want := range map[string]int{tag: http.StatusNotModified, "W/" + tag: http.StatusNotModified,
		`"x", ` + tag: http.StatusNotModified, "*": http.StatusNotModified, `"x"`: http.StatusOK} {
		again := s.do("", http.MethodGet, "/version", "", header("If-None-Match", have))
		if again.StatusCode != want || want == http.StatusNotModified && len(again.text) != 0 {
			t.Errorf("%s: %d %s", have, again.StatusCode, again.text)
		}
	}
	if !json.Valid(got.text) {
		t.Errorf("%s", got.text)
	}
}
