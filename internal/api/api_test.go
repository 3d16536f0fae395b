package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/calls"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
)

const address = "127.0.0.1:7374"

// site is an API over a ledger, with tokens of all sorts.
type site struct {
	t       *testing.T
	api     *API
	l       *ledger.Ledger
	tokens  map[string]string // by the name of the grant
	granted []access.Token
	log     bytes.Buffer
}

// spec finds the operations of openapi.json. TestMain validates it once, outside of any bubble of time.
var spec routers.Router

func TestMain(m *testing.M) {
	text, err := OpenAPI("")
	if err != nil {
		panic(err)
	}
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err == nil {
		err = doc.Validate(context.Background())
	}
	if err == nil {
		spec, err = gorillamux.NewRouter(doc)
	}
	if err != nil {
		panic(err)
	}
	m.Run()
}

func newSite(t *testing.T) *site {
	return siteOver(t, ledger.New(memory.New(memory.Options{}), ledger.Options{}))
}

// siteOver makes a site with the tokens all, none, mail (kind mail only) and one for each scope.
func siteOver(t *testing.T, l *ledger.Ledger) *site {
	t.Helper()
	s := &site{t: t, l: l, tokens: map[string]string{}}
	grants := []access.Grant{{Name: "all", Scopes: []access.Scope{access.Admin}}, {Name: "none"},
		{Name: "mail", Scopes: []access.Scope{access.Admin}, Kinds: []string{"mail"}, Agent: "box-"}}
	for _, scope := range access.Scopes {
		grants = append(grants, access.Grant{Name: string(scope), Scopes: []access.Scope{scope}})
	}
	for _, g := range grants {
		s.tokens[g.Name] = access.NewToken()
		s.granted = append(s.granted, access.Token{Grant: g, Hash: access.Hash(s.tokens[g.Name])})
	}
	s.api = New(Config{Ledger: l, Guard: access.NewGuard(address, []string{"ledger.example"}, s.granted, false),
		Environment: "production", Log: slog.New(slog.NewTextHandler(&s.log, nil)), Version: answer.NewVersion(1)})
	return s
}

// token adds a token with some scopes.
func (s *site) token(name string, scopes ...access.Scope) string {
	token := access.NewToken()
	s.granted = append(s.granted, access.Token{Grant: access.Grant{Name: name, Scopes: scopes}, Hash: access.Hash(token)})
	s.api.Guard.Set(nil, s.granted)
	return token
}

// reply is an answer with its body.
type reply struct {
	*http.Response
	t    *testing.T
	text []byte
}

// request makes a request of a token; changes are applied last.
func (s *site) request(token, method, path, body string, changes ...func(*http.Request)) *http.Request {
	r := httptest.NewRequestWithContext(s.t.Context(), method, "http://"+address+Base+path, strings.NewReader(body))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+s.tokens[token])
	}
	if body != "" {
		r.Header.Set("Content-Type", mediaJSON)
	}
	for _, change := range changes {
		change(r)
	}
	return r
}

// do sends a request and validates the answer against openapi.json.
func (s *site) do(token, method, path, body string, changes ...func(*http.Request)) reply {
	s.t.Helper()
	r := s.request(token, method, path, body, changes...)
	w := httptest.NewRecorder()
	s.api.ServeHTTP(w, r)
	res := w.Result()
	text, err := io.ReadAll(res.Body)
	must.OK(s.t, err)
	s.conforms(r, res, text)
	return reply{res, s.t, text}
}

// conforms validates an answer.
func (s *site) conforms(r *http.Request, res *http.Response, text []byte) {
	s.t.Helper()
	if strings.HasPrefix(r.URL.Path, Base+calls.Prefix) {
		return // it is for other ledgerds, and in no description
	}
	described, params, err := spec.FindRoute(s.request("", r.Method, strings.TrimPrefix(r.URL.EscapedPath(), Base), ""))
	if err != nil { // a path or a method that is none
		refusals := []int{http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusMisdirectedRequest,
			http.StatusForbidden}
		if res.StatusCode/100 != 3 && !slices.Contains(refusals, res.StatusCode) {
			s.t.Errorf("%s %s: %d, and it is not described: %v", r.Method, r.URL, res.StatusCode, err)
		}
		return
	}
	if media := res.Header.Get("Content-Type"); media == mediaLines || media == mediaEvents {
		return // lines are those of the list, events have tests of their own
	}
	asked := &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: described}
	err = openapi3filter.ValidateResponse(context.WithoutCancel(r.Context()), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: asked, Status: res.StatusCode, Header: res.Header,
		Body:    io.NopCloser(bytes.NewReader(text)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true}})
	if err != nil {
		s.t.Errorf("%s %s: %d is not as openapi.json has it: %v\n%s", r.Method, r.URL, res.StatusCode, err, text)
	}
}

// ok decodes a good answer.
func (r reply) ok(into any) reply {
	r.t.Helper()
	if r.StatusCode/100 != 2 {
		r.t.Fatalf("%d: %s", r.StatusCode, r.text)
	}
	if err := json.Unmarshal(r.text, into); err != nil {
		r.t.Fatalf("%v: %s", err, r.text)
	}
	return r
}

// fails checks that an answer is an error with a code.
func (r reply) fails(status int, code string) (p answer.Problem) {
	r.t.Helper()
	if err := json.Unmarshal(r.text, &p); err != nil || r.StatusCode != status || p.Code != code || p.Status != status ||
		r.Header.Get("Content-Type") != mediaProblem || p.Detail == "" || p.Type != codesURL+code {
		r.t.Errorf("%d, want %d %s: %s", r.StatusCode, status, code, r.text)
	}
	return p
}

// add adds items of a kind.
func (s *site) add(kind string, keys ...string) (ids []int64) {
	s.t.Helper()
	items := make([]ledger.NewItem, len(keys))
	for i, key := range keys {
		items[i] = ledger.NewItem{Kind: kind, Key: key, Payload: []byte(`{"secret":"` + key + `"}`)}
	}
	added, err := s.l.Add(s.t.Context(), items...)
	must.OK(s.t, err)
	for _, a := range added {
		ids = append(ids, a.ID)
	}
	return ids
}

// end claims one item of a kind and ends its attempt.
func (s *site) end(kind string, res ledger.Result) {
	s.t.Helper()
	leases, err := s.l.Claim(s.t.Context(), ledger.Claim{Kind: kind, Agent: "ann", Limit: 1})
	if err != nil || len(leases) != 1 {
		s.t.Fatalf("%d leases, %v", len(leases), err)
	}
	if errs := s.l.Finish(s.t.Context(), ledger.Ending{Lease: leases[0], Result: res}); errs[0] != nil {
		s.t.Fatal(errs[0])
	}
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func host(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
