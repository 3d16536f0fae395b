package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
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

// freeze stops a process between two of its writes to the file: a process that is stopped while it has the write lock
// delays all others. A thread in the kernel stops only when it returns, maybe with the lock.
func (m *machine) freeze(p *started) {
	m.t.Helper()
	signal := func(s syscall.Signal) {
		must.OK(m.t, p.Process.Signal(s))
	}
	stopped := func() bool {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Process.Pid))
		if err != nil || len(tasks) == 0 {
			m.t.Fatal("no threads", err)
		}
		return !slices.ContainsFunc(tasks, func(task string) bool {
			stat, err := os.ReadFile(task)
			return err == nil && !strings.Contains(string(stat), ") T ")
		})
	}
	m.until("it is stopped between two writes", func() bool {
		signal(syscall.SIGSTOP)
		m.until("all its threads are stopped", stopped)
		if _, err := m.database().ExecContext(m.t.Context(),
			"PRAGMA busy_timeout = 100; BEGIN IMMEDIATE; ROLLBACK"); err == nil {
			return true
		}
		signal(syscall.SIGCONT)
		return false
	})
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

// A process that is only stopped keeps its items.
func TestStoppedIsNotGone(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		dir := t.TempDir()
		effects, till := filepath.Join(dir, "effects"), filepath.Join(dir, "go")
		stopped := m.start("run", "effect", "a", "--set", "till="+till, "--with", "path="+effects)
		m.until("it is begun", func() bool { return lines(t, effects, "start")["a"] == 1 })
		m.freeze(stopped)
		must.OK(t, os.WriteFile(till, nil, 0o600))
		m.run(failure.ExitUnfinished, "run", "effect", "a", "--set", "till="+till, "--with", "path="+effects, "--wait", "3s")
		if n := lines(t, effects, "start")["a"]; n != 1 {
			t.Errorf("begun %d times", n)
		}
		m.stop(stopped, syscall.SIGCONT, failure.ExitOK)
	})
}
