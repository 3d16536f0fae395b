package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
)

// killed kills a process and waits for its end.
func (m *machine) killed(p *started) {
	m.t.Helper()
	must.OK(m.t, p.Process.Kill())
	<-p.done
}

// The items of a killed process are begun by the next process at once, and its heartbeat blocks no other process.
func TestKilledIsGone(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		dir := t.TempDir()
		effects, till := filepath.Join(dir, "effects"), filepath.Join(dir, "go")
		m.run(failure.ExitOK, "add", "effect", "a", "b", "c", "--set", "till="+till)
		// No lease ends while this test runs.
		args := []string{"work", "--kind", "effect", "-j", "3", "--lease", "24h", "--with", "path=" + effects}
		begun := func(times int) func() bool {
			return func() bool {
				all := lines(t, effects, "start")
				return all["a"] >= times && all["b"] >= times && all["c"] >= times
			}
		}
		first := m.start(args...)
		m.until("all are begun", begun(1))
		m.killed(first)
		m.until("it is known", func() bool {
			return strings.Contains(m.run(failure.ExitOK, "show", "a"), " is not heard of since ")
		})
		if agents := m.run(failure.ExitOK, "agents", "-o", "jsonl"); strings.Count(agents, "\n") != 1 ||
			!strings.Contains(agents, `"held":3`) {
			t.Errorf("agents after the kill: %s", agents)
		}
		second := m.start(args...)
		m.until("all are begun by the next process", begun(2))
		working := func() (string, int) {
			agents := m.run(failure.ExitOK, "agents", "-o", "jsonl")
			return agents, strings.Count(agents, `"state":"at_work"`)
		}
		if agents, n := working(); n != 1 || strings.Count(agents, `"state":"gone"`) != 1 {
			t.Errorf("agents: %s", agents)
		}

		// A process that runs already takes such items as well.
		third := m.start(args...)
		m.until("another one lives", func() bool {
			_, n := working()
			return n == 2
		})
		m.killed(second)
		m.until("all are begun by one that lives", begun(3))
		must.OK(t, os.WriteFile(till, nil, 0o600))
		m.until("all are done", func() bool { return m.count("state:done") == 3 })
		must.OK(t, third.Process.Signal(syscall.SIGTERM))
		m.exit(third)
		if code := "process_gone"; !strings.Contains(m.run(failure.ExitOK, "show", "a", "-o", "json"), code) {
			t.Errorf("no attempt of a has code %s", code)
		}
		m.run(failure.ExitOK, "db", "verify")
	})
}
