package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"testing"
	"time"

	protocol "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api"
	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a ledger in memory with its own clock, and an API on it.
type rig struct {
	t   *testing.T
	l   *ledger.Ledger
	api *api.API
	now time.Time
	// tokens of the API by name: one for each scope, "agent" with the scopes of the command, "all", and "mail"
	tokens map[string]string
	// answered is called before the server of an agent gets an answer of the API. May be nil.
	answered func(path string)
	log      bytes.Buffer
}

var agentScopes = []access.Scope{access.Read, access.Payload, access.Add, access.Work}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, now: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC), tokens: map[string]string{}}
	r.l = ledger.New(memory.New(memory.Options{Now: func() time.Time { return r.now }}), ledger.Options{})
	must.Do(t)(r.l.EditKind(t.Context(), "ann", "task", func(*ledger.Kind, bool) {}))
	grants := []access.Grant{{Name: "agent", Scopes: agentScopes}, {Name: "all", Scopes: []access.Scope{access.Admin}},
		{Name: "mail", Scopes: agentScopes, Kinds: []string{"mail"}, Agent: "box-"}}
	for _, scope := range access.Scopes {
		grants = append(grants, access.Grant{Name: string(scope), Scopes: []access.Scope{scope}})
	}
	var tokens []access.Token
	for _, g := range grants {
		r.tokens[g.Name] = access.NewToken()
		tokens = append(tokens, access.Token{Grant: g, Hash: access.Hash(r.tokens[g.Name])})
	}
	r.api = api.New(api.Config{Ledger: r.l, Log: slog.New(slog.NewTextHandler(&r.log, nil)),
		Version: answer.NewVersion(1), Guard: access.NewGuard("localhost", nil, tokens, false)})
	return r
}

// RoundTrip implements http.RoundTripper.
func (r *rig) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := Within{r.api}.RoundTrip(req)
	if r.answered != nil {
		r.answered(req.URL.Path)
	}
	return res, err
}

// agent is a connected agent.
type agent struct {
	*protocol.ClientSession
	t    *testing.T
	ends func() // closes the agent's stream and waits until the server has ended
}

// connect starts a server on a pair of streams and connects an agent to it.
func (r *rig) connect(token, name string) *agent { return r.connectWith(token, name, nil) }

func (r *rig) connectWith(token, name string, options *protocol.ClientOptions) *agent {
	r.t.Helper()
	here, there := protocol.NewInMemoryTransports()
	caller := &Caller{Client: &http.Client{Transport: r}, At: "http://localhost", Token: r.tokens[token]}
	ended := make(chan error, 1)
	go func() { ended <- serve(r.t.Context(), caller, name, there) }()
	c := protocol.NewClient(&protocol.Implementation{Name: "tester", Version: "1"}, options)
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	s, err := c.Connect(ctx, here, nil)
	must.OK(r.t, err)
	a := &agent{ClientSession: s, t: r.t}
	over := false
	a.ends = func() {
		if over {
			return
		}
		over = true
		_ = s.Close()
		if err := <-ended; err != nil {
			r.t.Errorf("the server ended with %v", err)
		}
	}
	r.t.Cleanup(a.ends)
	return a
}

// call calls a tool that must succeed.
func (a *agent) call(tool string, arguments any) reply {
	a.t.Helper()
	got := a.try(tool, arguments)
	if got.Error != nil {
		a.t.Fatalf("%s: %+v", tool, got.Error)
	}
	return got
}

// reply is an answer as the agent decodes it.
type reply struct {
	Notices []notice
	Error   *mistake
	Cut     bool
	About   string `json:"about_data"`
	Data    map[string]any
	text    string
}

func (a *agent) try(tool string, arguments any) reply {
	a.t.Helper()
	res, err := a.CallTool(context.Background(), &protocol.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		a.t.Fatalf("%s: %v", tool, err)
	}
	if len(res.Content) != 1 || res.StructuredContent != nil {
		a.t.Fatalf("%s: %+v, want one text", tool, res)
	}
	text := res.Content[0].(*protocol.TextContent).Text
	got := reply{text: text}
	if json.Unmarshal([]byte(text), &got) != nil { // the SDK has refused the arguments
		got.Error = &mistake{Code: "arguments", Detail: text}
	}
	if res.IsError != (got.Error != nil) {
		a.t.Errorf("%s: marked as error: %v, %s", tool, res.IsError, text)
	}
	return got
}

// rows returns a list of an answer.
func (s reply) rows(name string) (rows []map[string]any) {
	list, _ := s.Data[name].([]any)
	for _, row := range list {
		rows = append(rows, row.(map[string]any))
	}
	return rows
}

// tokensOf returns the tokens of a claim.
func (s reply) tokensOf() (tokens []string) {
	for _, row := range s.rows("items") {
		tokens = append(tokens, row["token"].(string))
	}
	return tokens
}

// o is a JSON object.
type o = map[string]any

// add adds tasks with these keys.
func (r *rig) add(keys ...string) (ids []int64) {
	r.t.Helper()
	for _, key := range keys {
		got, err := r.l.Add(r.t.Context(), ledger.NewItem{Kind: "task", Key: key,
			Payload: ledger.JSON(o{"description": "do " + key})})
		must.OK(r.t, err)
		ids = append(ids, got[0].ID)
	}
	return ids
}

// pass advances the clock, then expires and promotes as workers do.
func (r *rig) pass(d time.Duration) {
	r.t.Helper()
	r.now = r.now.Add(d)
	must.Do(r.t)(r.l.Expire(r.t.Context(), 1000))
	must.Do(r.t)(r.l.Promote(r.t.Context(), 1000))
}

func (r *rig) item(id int64) ledger.Item {
	r.t.Helper()
	it, err := r.l.Get(r.t.Context(), id)
	must.OK(r.t, err)
	return it
}
