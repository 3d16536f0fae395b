package main

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ledgerd/ledgerd/internal/failure"
)

// withToken sends a token with each request.
type withToken string

func (w withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(w))
	return http.DefaultTransport.RoundTrip(r)
}

// mcpAgent is an agent with a separate process of ledgerd mcp.
type mcpAgent struct {
	m       *machine
	process *started
	session *mcp.ClientSession
}

// mcpAnswer is the answer of a tool.
type mcpAnswer struct {
	Data struct{ Items []struct{ Token string } }
}

// mcpAgent starts an agent.
func (m *machine) mcpAgent(name string, args ...string) *mcpAgent {
	m.t.Helper()
	cmd := exec.Command(m.program, append([]string{"mcp", "-q", "--agent", name}, args...)...)
	cmd.Env = m.env
	a := &mcpAgent{m: m, process: &started{Cmd: cmd, done: make(chan struct{})}}
	cmd.Stderr = &a.process.stderr
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	var err error
	over := &mcp.CommandTransport{Command: cmd, TerminateDuration: patience}
	if a.session, err = c.Connect(m.t.Context(), over, nil); err != nil {
		m.t.Fatalf("%v\n%s", err, a.process.stderr.String())
	}
	m.t.Cleanup(func() { _ = cmd.Process.Kill() })
	return a
}

// call calls a tool.
func (a *mcpAgent) call(tool string, arguments map[string]any) (got mcpAnswer) {
	a.m.t.Helper()
	res, err := a.session.CallTool(a.m.t.Context(), &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		a.m.t.Fatalf("%s: %v\n%s", tool, err, a.process.stderr.String())
	}
	if err := json.Unmarshal([]byte(res.Content[0].(*mcp.TextContent).Text), &got); err != nil {
		a.m.t.Fatalf("%s: %v: %v", tool, err, res.Content[0])
	}
	return got
}

// The servers of the API also serve agents, also behind a proxy's prefix. An agent also works a ledger that its program
// reaches over HTTP, with the rights of its token. Items that it has claimed ahead are released when it ends.
func TestMCPServed(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		m.run(failure.ExitOK, "db", "migrate")
		m.run(failure.ExitOK, "kind", "set", "task", "--input", "line")
		token, config := m.newToken("box", "--scope", "read,add,work", "--agent", "box-")
		s := m.site("listen = \"\"\n[api]\nlisten = \"127.0.0.1:0\"\nprefix = \"/x\"\n" + config)
		_, base := m.api("--config", s.config)
		daemon := s.daemon()
		at := regexp.MustCompile(`"msg":"the API is served","at":"([0-9.:]+)"`).FindStringSubmatch(daemon.stderr.String())
		if at == nil {
			t.Fatalf("no API\n%s", daemon.stderr.String())
		}
		for i, at := range []string{strings.TrimSuffix(base, "/api/v1"), "http://" + at[1], "http://" + at[1] + "/x"} {
			key := string(rune('a' + i))
			c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
			connect := func(token string) (*mcp.ClientSession, error) {
				return c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: at + "/mcp?agent=box-" + key,
					HTTPClient: &http.Client{Transport: withToken(token)}}, nil)
			}
			if _, err := connect("ldg_wrong"); err == nil {
				t.Errorf("%s: a wrong token was taken", at)
			}
			session, err := connect(token)
			if err != nil {
				t.Fatal(at, err)
			}
			defer session.Close()
			for _, call := range []*mcp.CallToolParams{
				{Name: "add", Arguments: map[string]any{"items": []any{map[string]any{"kind": "task", "key": key}}}},
				{Name: "claim", Arguments: map[string]any{"kind": "task", "wait_s": 30}},
			} {
				if res, err := session.CallTool(t.Context(), call); err != nil || res.IsError {
					t.Errorf("%s %s: %v, %v", at, call.Name, res, err)
				}
			}
		}
		if n := m.count("kind:task state:leased"); n != 3 {
			t.Errorf("%d items were claimed, want 3", n)
		}
		far := *m
		far.env = append(far.env, "LEDGERD_DB="+strings.TrimSuffix(base, "/api/v1"), "LEDGERD_TOKEN="+token)
		a := far.mcpAgent("box-1")
		a.call("add", map[string]any{"items": []map[string]any{{"kind": "task", "key": "d"}}})
		if got := a.call("claim", map[string]any{"kind": "task", "ahead": true}); len(got.Data.Items) != 1 {
			t.Fatalf("claimed %+v", got)
		}
		if err := a.session.Close(); err != nil {
			t.Errorf("%v\n%s", err, a.process.stderr.String())
		}
		if n := m.count("state:ready"); n != 1 {
			t.Error("the item was not given back")
		}
		far.env = append(far.env, "LEDGERD_TOKEN=ldg_wrong")
		far.ends(far.start("mcp"), failure.ExitDenied, "this token is not known")
	})
}
