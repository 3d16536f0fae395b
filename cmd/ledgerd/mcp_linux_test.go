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
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
)

// mcpAgent is an agent with a separate process of ledgerd mcp.
type mcpAgent struct {
	m       *machine
	name    string
	process *started
	session *mcp.ClientSession
}

// mcpAnswer is the answer of a tool.
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
		a.m.t.Fatalf("%s of %s: %v\n%s", tool, a.name, err, a.process.stderr.String())
	}
	if err := json.Unmarshal([]byte(res.Content[0].(*mcp.TextContent).Text), &got); err != nil {
		a.m.t.Fatalf("%s of %s: %v: %v", tool, a.name, err, res.Content[0])
	}
	return got
}

// kill kills the process of an agent, and starts another one with the same name.
func (a *mcpAgent) kill() {
	_ = a.process.Process.Kill()
	_ = a.session.Close()
	*a = *a.m.mcpAgent(a.name, "--kind", "task")
}

// freeze stops the process of an agent until another agent has its item, and continues it.
func (a *mcpAgent) freeze(l *ledger.Ledger, id, attempt int64) {
	a.m.t.Helper()
	a.m.freeze(a.process)
	a.m.until("another agent has the item", func() bool {
		it, err := l.Get(a.m.t.Context(), id)
		return err == nil && it.Attempt > attempt
	})
	must.OK(a.m.t, a.process.Process.Signal(syscall.SIGCONT))
}

// shared is the state that agents share in a test.
type shared struct {
	ledger    *ledger.Ledger
	disturbed chan struct{} // has one element for each agent that is killed or frozen now

	mu    sync.Mutex
	done  map[int64]int // how often the end of each item was recorded
	added int
	turns int // how many agents were killed or frozen
}

const (
	mcpAgents = 8
	mcpItems  = 400
	mcpFirst  = 80 // items at the beginning; more are added after each turn
	mcpTurns  = 16
)

// take begins the next turn: an agent is killed or frozen. There are at most two at a time.
func (s *shared) take() (turn int, ok bool) {
	select {
	case s.disturbed <- struct{}{}:
	default:
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turns == mcpTurns {
		<-s.disturbed
		return 0, false
	}
	s.turns++
	return s.turns, true
}

// fill adds the next items.
func (s *shared) fill(a *mcpAgent, n int) {
	s.mu.Lock()
	from := s.added
	s.added += n
	s.mu.Unlock()
	var rows []map[string]any
	for i := range n {
		rows = append(rows, map[string]any{"kind": "task", "key": fmt.Sprintf("task-%03d", from+i),
			"payload": map[string]any{"description": "count to three", "acceptance": "three was reached"}})
	}
	a.call("add", map[string]any{"items": rows})
}

// over reports whether all items are done.
func (s *shared) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.done) == mcpItems
}

// work works until all items are done.
func (a *mcpAgent) work(s *shared) {
	for !s.over() {
		claim := a.call("claim", map[string]any{"kind": "task", "limit": 2, "lease_s": 2, "wait_s": 1})
		for _, it := range claim.Data.Items {
			end := map[string]any{"token": it.Token, "output": map[string]any{"by": a.name}}
			turn, taken := s.take()
			frozen := taken && turn%2 == 0
			switch {
			case frozen:
				a.freeze(s.ledger, it.ID, it.Attempt)
			case taken:
				a.kill()
			}
			got := a.call("finish", end)
			if frozen && (got.Error.Code != "lease_lost" || len(got.Notices) == 0) {
				a.m.t.Errorf("a stale end was answered by %+v", got)
			}
			if taken {
				s.fill(a, (mcpItems-mcpFirst)/mcpTurns)
				<-s.disturbed
			}
			if got.Error.Code == "" {
				s.mu.Lock()
				s.done[it.ID]++
				s.mu.Unlock()
			}
		}
	}
}

// Eight agents share items while two at a time are killed, or frozen past their lease and continued. Each item is done
// once, and late ends are refused.
func TestMCPAgentsShare(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		var agents []*mcpAgent
		for i := range mcpAgents {
			agents = append(agents, m.mcpAgent(fmt.Sprintf("agent-%d", i), "--kind", "task"))
		}
		s := &shared{ledger: m.ledger(), done: map[int64]int{}, disturbed: make(chan struct{}, 2)}
		s.fill(agents[0], mcpFirst)
		var all sync.WaitGroup
		for _, a := range agents {
			all.Go(func() { a.work(s) })
		}
		all.Wait()
		for id, n := range s.done {
			if n != 1 {
				t.Errorf("item %d was done %d times", id, n)
			}
		}
		if n := m.count("kind:task state:done"); n != mcpItems {
			t.Errorf("%d items are done, want %d", n, mcpItems)
		}
		m.run(failure.ExitOK, "db", "verify")
	})
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
