package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ledgerd/ledgerd/internal/failure"
)

// mcpAgent is an agent with its own process of ledgerd mcp.
type mcpAgent struct {
	m       *machine
	name    string
	process *started
	session *mcp.ClientSession
}

// mcpAnswer is what a tool answers.
type mcpAnswer struct {
	Notices []struct {
		Event, Holder string
		Item          int64
	}
	Error struct{ Code, Detail string }
	Data  struct {
		Items []struct {
			ID, Attempt int64
			Token       string
		}
	}
}

// mcpAgent starts an agent.
func (m *machine) mcpAgent(name string, args ...string) *mcpAgent {
	m.t.Helper()
	cmd := exec.Command(m.program, append([]string{"mcp", "-q", "--agent", name}, args...)...)
	cmd.Env = m.env
	a := &mcpAgent{m: m, name: name, process: &started{Cmd: cmd, done: make(chan struct{})}}
	cmd.Stderr = &a.process.stderr
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	var err error
	if a.session, err = c.Connect(m.t.Context(), &mcp.CommandTransport{Command: cmd, TerminateDuration: patience}, nil); err != nil {
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
		a.m.t.Fatalf("%s of %s: %v\n%s", tool, a.name, err, a.process.stderr.String())
	}
	if err := json.Unmarshal([]byte(res.Content[0].(*mcp.TextContent).Text), &got); err != nil {
		a.m.t.Fatalf("%s of %s: %v: %v", tool, a.name, err, res.Content[0])
	}
	return got
}

// kill kills the process of an agent, and starts another one of the same name.
func (a *mcpAgent) kill() {
	_ = a.process.Process.Kill()
	_ = a.session.Close()
	*a = *a.m.mcpAgent(a.name, "--kind", "task")
}

// freeze stops the process of an agent until another agent has its item, and wakes it.
func (a *mcpAgent) freeze(id, attempt int64) {
	a.m.t.Helper()
	a.m.freeze(a.process)
	l := a.m.ledger()
	a.m.until("another agent has the item", func() bool {
		it, err := l.Get(a.m.t.Context(), id)
		return err == nil && it.Attempt > attempt
	})
	if err := a.process.Process.Signal(syscall.SIGCONT); err != nil {
		a.m.t.Fatal(err)
	}
}

// shared is what agents share in a test.
type shared struct {
	mu        sync.Mutex
	done      map[int64]int // by item, how often its end was recorded
	refused   int           // stale ends
	killed    int
	disturbed chan struct{} // holds one for each agent that is killed or frozen now
}

// work works until all items are done. Of each few items one is worked by an agent that is killed, or frozen past its
// lease.
func (a *mcpAgent) work(s *shared, all int) {
	for n := 0; ; {
		claim := a.call("claim", map[string]any{"kind": "task", "limit": 2, "lease_s": 3, "wait_s": 1})
		for _, it := range claim.Data.Items {
			n++
			end := map[string]any{"token": it.Token, "output": map[string]any{"by": a.name}}
			switch n % 20 {
			case 6:
				s.disturbed <- struct{}{}
				a.kill()
				<-s.disturbed
				s.mu.Lock()
				s.killed++
				s.mu.Unlock()
			case 16:
				s.disturbed <- struct{}{}
				a.freeze(it.ID, it.Attempt)
				got := a.call("finish", end)
				<-s.disturbed
				if got.Error.Code != "lease_lost" || len(got.Notices) == 0 {
					a.m.t.Errorf("a stale end was answered by %+v", got)
				}
				s.mu.Lock()
				s.refused++
				s.mu.Unlock()
				continue
			}
			if got := a.call("finish", end); got.Error.Code == "" {
				s.mu.Lock()
				s.done[it.ID]++
				s.mu.Unlock()
			}
		}
		s.mu.Lock()
		over := len(s.done) == all
		s.mu.Unlock()
		if over {
			return
		}
	}
}

// TestMCPAgentsShare: eight agents share items while two at a time are killed, or frozen past their lease and woken.
// Each item is done once, and stale ends are refused.
func TestMCPAgentsShare(t *testing.T) {
	const agents, items = 8, 400
	onBoth(t, func(t *testing.T, m *machine) {
		s := &shared{done: map[int64]int{}, disturbed: make(chan struct{}, 2)}
		first := m.mcpAgent("agent-0", "--kind", "task")
		var rows []map[string]any
		for i := range items {
			rows = append(rows, map[string]any{"kind": "task", "key": fmt.Sprintf("task-%03d", i),
				"payload": map[string]any{"description": "count to three", "acceptance": "three was reached"}})
		}
		first.call("add", map[string]any{"items": rows})
		var all sync.WaitGroup
		for i := range agents {
			a := first
			if i > 0 {
				a = m.mcpAgent(fmt.Sprintf("agent-%d", i), "--kind", "task")
			}
			all.Go(func() { a.work(s, items) })
		}
		all.Wait()
		for id, n := range s.done {
			if n != 1 {
				t.Errorf("item %d was done %d times", id, n)
			}
		}
		if s.killed < agents/2 || s.refused < agents/2 {
			t.Errorf("%d agents were killed, %d were woken too late: this test has lost its object", s.killed, s.refused)
		}
		t.Logf("%d killed, %d woken too late", s.killed, s.refused)
		if n := m.count("kind:task state:done"); n != items {
			t.Errorf("%d items are done, want %d", n, items)
		}
		m.run(failure.ExitOK, "db", "verify")
	})
}

// TestMCPOverHTTP: an agent works a ledger that its program reaches over HTTP, with the rights of its token. What it has
// claimed ahead goes back when it ends.
func TestMCPOverHTTP(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		m.run(failure.ExitOK, "kind", "set", "task", "--db", m.db)
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
		if code := far.exit(p); code != failure.ExitDenied || !strings.Contains(p.stderr.String(), "this token is not known") {
			t.Errorf("exit %d\n%s", code, p.stderr.String())
		}
	})
}

