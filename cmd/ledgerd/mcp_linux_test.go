package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ledgerd/ledgerd/internal/failure"
)

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

// An agent works a ledger that its program reaches over HTTP, with the rights of its token. Items that it has claimed
// ahead are released when it ends.
func TestMCPOverHTTP(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		m.run(failure.ExitOK, "db", "migrate")
		m.run(failure.ExitOK, "kind", "set", "task", "--input", "line")
		token, config := m.newToken("box", "--scope", "read,add,work", "--agent", "box-")
		_, base := m.api("--config", m.site("[api]\nlisten = \"127.0.0.1:0\"\n"+config).config)
		far := *m
		far.env = append(far.env, "LEDGERD_DB="+strings.TrimSuffix(base, "/api/v1"), "LEDGERD_TOKEN="+token)
		a := far.mcpAgent("box-1")
		a.call("add", map[string]any{"items": []map[string]any{{"kind": "task", "key": "a"}}})
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
		p := far.start("mcp")
		far.ends(p, failure.ExitDenied, "this token is not known")
	})
}
