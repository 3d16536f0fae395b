package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
)

// backWithin is five times the time within which items of a killed process are begun again on its machine. The leases
// in these tests last a minute.
const backWithin = 5 * 2 * time.Second

// within waits until a condition that must hold soon holds.
func (m *machine) within(most time.Duration, what string, holds func() bool) {
	m.t.Helper()
	began := time.Now()
	m.until(what, holds)
	if took := time.Since(began); took > most {
		m.t.Errorf("%s: after %s, not within %s", what, took, most)
	}
}

// killed kills a process and waits for its end.
func (m *machine) killed(p *started) {
	m.t.Helper()
	must.OK(m.t, p.Process.Kill())
	<-p.done
}

// The items of a killed process are begun by the next process at once, and its heartbeat blocks no other process.
func TestKilledIsGone(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine) {
		dir := t.TempDir()
		effects, till := filepath.Join(dir, "effects"), filepath.Join(dir, "go")
		args := []string{"run", "effect", "a", "b", "c", "-j", "3", "--set", "till=" + till, "--with", "path=" + effects}
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
		m.within(backWithin, "all are begun by the next run", begun(2))
		working := func() (string, int) {
			agents := m.run(failure.ExitOK, "agents", "-o", "jsonl")
			return agents, strings.Count(agents, `"state":"at_work"`)
		}
		if agents, n := working(); n != 1 || strings.Count(agents, `"state":"gone"`) != 1 {
			t.Errorf("agents: %s", agents)
		}

		// A process that runs already takes such items as well.
		third := m.start("work", "--kind", "effect", "--with", "path="+effects)
		m.until("another one lives", func() bool {
			_, n := working()
			return n == 2
		})
		m.killed(second)
		m.within(backWithin, "all are begun by one that lives", begun(3))
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
