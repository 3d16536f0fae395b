package mcp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	protocol "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
)

// bearer sends a token with each request.
type bearer struct{ token string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

// serve starts an HTTP server on the rig.
func (r *rig) serve() *httptest.Server {
	r.t.Helper()
	s := httptest.NewServer(NewHandler(r.api))
	r.t.Cleanup(s.Close)
	r.t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	return s
}

// far connects an agent over HTTP.
func (r *rig) far(s *httptest.Server, token, name string) *agent {
	r.t.Helper()
	c := protocol.NewClient(&protocol.Implementation{Name: "tester", Version: "1"}, nil)
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	session, err := c.Connect(ctx, &protocol.StreamableClientTransport{Endpoint: s.URL + Path + "?agent=" + name,
		HTTPClient: &http.Client{Transport: bearer{r.tokens[token]}}}, nil)
	must.OK(r.t, err)
	r.t.Cleanup(func() { _ = session.Close() })
	return &agent{ClientSession: session, t: r.t}
}

// TestHTTP: agents with one token share items over HTTP, each under its own name. Their calls renew the leases there,
// too.
func TestHTTP(t *testing.T) {
	r := newRig(t)
	id := r.add("a", "b")[0]
	s := r.serve()
	a, b := r.far(s, "agent", "ann"), r.far(s, "agent", "bob")
	token := a.call("claim", o{"kind": "task", "lease_s": 60}).tokensOf()[0]
	if got := b.call("claim", o{"kind": "task"}).rows("items"); len(got) != 1 || got[0]["key"] != "b" {
		t.Errorf("bob has %v", got)
	}
	r.pass(50 * time.Second)
	a.call("stats", o{})
	r.pass(50 * time.Second)
	if it := r.item(id); it.Agent != "ann" {
		t.Errorf("renewed by its calls: %+v", it)
	}
	again := r.far(s, "agent", "ann") // its program restarts
	if got := again.call("claim", o{"kind": "task"}).rows("items"); got[0]["token"] != token || got[0]["resumed"] != true {
		t.Errorf("back: %v", got)
	}
	r.pass(61 * time.Second)
	r.far(s, "agent", "carl").call("claim", o{"kind": "task"})
	if got := again.call("stats", o{}).Notices; len(got) != 1 || got[0].Event != "lost" || got[0].Holder != "carl" {
		t.Errorf("told %v", got)
	}
	if got := again.try("finish", o{"token": token}); got.Error == nil || got.Error.Code != "lease_lost" {
		t.Errorf("a stale end: %s", got.text)
	}
	if got := r.far(s, "agent", "").try("claim", o{"kind": "task"}); got.Error == nil || got.Error.Field != "agent" {
		t.Errorf("without a name: %s", got.text)
	}
	if got := r.far(s, "mail", "ann").try("claim", o{"kind": "mail"}); got.Error == nil || got.Error.Code != "scope" {
		t.Errorf("a name that the token does not allow: %s", got.text)
	}
	got, err := r.far(s, "read", "ann").ListTools(t.Context(), nil)
	if err != nil || len(got.Tools) != 4 {
		t.Errorf("with the scope read: %+v, %v", got, err)
	}
}

// TestRefused: a request is refused if the API refuses it.
func TestRefused(t *testing.T) {
	r := newRig(t)
	s := r.serve()
	header := func(name, value string) func(*http.Request) {
		return func(q *http.Request) { q.Header.Set(name, value) }
	}
	for name, c := range map[string]struct {
		status int
		code   string
		change func(*http.Request)
	}{
		"no token":    {http.StatusUnauthorized, "unauthorized", func(q *http.Request) { q.Header.Del("Authorization") }},
		"wrong token": {http.StatusUnauthorized, "unauthorized", header("Authorization", "Bearer x")},
		"no scope":    {http.StatusForbidden, "scope", header("Authorization", "Bearer "+r.tokens["add"])},
		"other host":  {http.StatusMisdirectedRequest, "wrong_host", func(q *http.Request) { q.Host = "evil.example" }},
		"other site":  {http.StatusForbidden, "cross_site", header("Origin", "https://evil.example")},
		"a browser":   {http.StatusForbidden, "cross_site", header("Sec-Fetch-Site", "cross-site")},
		"GET":         {http.StatusMethodNotAllowed, "", func(q *http.Request) { q.Method = http.MethodGet }},
		"too much": {http.StatusRequestEntityTooLarge, "", func(q *http.Request) {
			q.Body = io.NopCloser(bytes.NewReader(make([]byte, maxBody+1)))
		}},
		"as it is meant": {http.StatusOK, "", func(*http.Request) {}},
	} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+Path,
			strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		must.OK(t, err)
		q.Header.Set("Authorization", "Bearer "+r.tokens["agent"])
		q.Header.Set("Content-Type", "application/json")
		q.Header.Set("Accept", "application/json, text/event-stream")
		if c.change(q); name == "too much" {
			q.ContentLength = -1
		}
		res, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(name, err)
		}
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != c.status || !strings.Contains(string(text), c.code) {
			t.Errorf("%s: %s %s, want %d %s", name, res.Status, text, c.status, c.code)
		}
	}
	a := r.far(s, "agent", "ann")
	r.api.Guard.Set(nil, []access.Token{}) // the config no longer has the token
	if _, err := a.CallTool(t.Context(), &protocol.CallToolParams{Name: "stats", Arguments: o{}}); err == nil {
		t.Error("a token that is gone was taken")
	}
}

// TestDesks: the number of remembered agents is bounded.
func TestDesks(t *testing.T) {
	h := NewHandler(newRig(t).api)
	for i := range maxDesks + 10 {
		h.desk(name{"t", strings.Repeat("x", i%200) + string(rune('0'+i/200))})
	}
	if n := len(h.desks); n > maxDesks {
		t.Errorf("%d desks", n)
	}
}

// TestRoles: agents read items by URI, and prompts name the kind.
func TestRoles(t *testing.T) {
	r := newRig(t)
	id := r.add("a")[0]
	a := r.connect("agent", "ann")
	got, err := a.ReadResource(t.Context(), &protocol.ReadResourceParams{URI: "ledger://items/1"})
	if err != nil || !strings.Contains(got.Contents[0].Text, `"description":"do a"`) ||
		!strings.Contains(got.Contents[0].Text, aboutData) {
		t.Errorf("item %d: %+v, %v", id, got, err)
	}
	for _, uri := range []string{"ledger://items/2", "ledger://items/x", "ledger://items/../kinds"} {
		if _, err := a.ReadResource(t.Context(), &protocol.ReadResourceParams{URI: uri}); err == nil ||
			!strings.Contains(err.Error(), "not found") {
			t.Errorf("%s: %v", uri, err)
		}
	}
	for _, role := range []string{"worker", "lead"} {
		p, err := a.GetPrompt(t.Context(), &protocol.GetPromptParams{Name: role,
			Arguments: map[string]string{"kind": "task"}})
		if err != nil || !strings.Contains(p.Messages[0].Content.(*protocol.TextContent).Text, `the kind "task"`) {
			t.Errorf("%s: %+v, %v", role, p, err)
		}
	}
}

// TestProgress: an agent that waits for an act gets its progress.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.add("a", "b")
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.api.Run(ctx) }()
		defer func() { end(); <-ended }()
		var heard []string
		a := r.connectWith("all", "ann", &protocol.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, req *protocol.ProgressNotificationClientRequest) {
				heard = append(heard, fmt.Sprint(req.Params.ProgressToken, req.Params.Message, req.Params.Total))
			}})
		held := a.call("act", o{"act": "cancel", "where": "kind:task", "expect": 2}).Data
		params := &protocol.CallToolParams{Name: "act", Arguments: o{"id": held["id"], "wait_s": 50}}
		params.SetProgressToken("p")
		must.Do(t)(a.CallTool(t.Context(), params))
		synctest.Wait()
		if len(heard) < 10 || heard[0] != "pheld2" {
			t.Errorf("heard %q", heard)
		}
		if it := r.item(1); it.State != ledger.StateCancelled {
			t.Errorf("item 1 is %s", it.State)
		}
		a.ends()
	})
}
