package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// backWithin is five times the time within which what a killed process had is begun again on its machine. The
// leases in these tests end after a minute.
const backWithin = 5 * 2 * time.Second

// within waits until a condition holds that has to hold soon.
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
	if err := p.Process.Kill(); err != nil {
		m.t.Fatal(err)
	}
	<-p.done
}

// What a process had that was killed is begun by the next one at once, and its heartbeat is in nobody's way.
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
		m.until("it is known", func() bool { return strings.Contains(m.run(exitOK, "show", "a"), " is not heard of since ") })
		if agents := m.run(exitOK, "agents", "-o", "jsonl"); strings.Count(agents, "\n") != 1 || !strings.Contains(agents, `"heartbeat_age_s":null`) {
			t.Errorf("agents after the kill: %s", agents)
		}
		second := m.start(args...)
		m.within(backWithin, "all are begun by the next run", begun(2))
		if agents := m.run(exitOK, "agents", "-o", "jsonl"); strings.Count(agents, "\n") != 1 {
			t.Errorf("agents: %s", agents)
		}

		// One that lives takes over as well.
		third := m.start("work", "--kind", "effect", "--with", "path="+effects)
		m.until("another one lives", func() bool { return strings.Count(m.run(exitOK, "agents", "-o", "jsonl"), "\n") == 2 })
		m.killed(second)
		m.within(backWithin, "all are begun by one that lives", begun(3))
		if err := os.WriteFile(till, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		m.until("all are done", func() bool { return strings.Count(m.run(exitOK, "ls", "--state", "done", "-o", "jsonl"), "\n") == 3 })
		if err := third.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		m.exit(third)
		if code := "process_gone"; !strings.Contains(m.run(exitOK, "show", "a", "-o", "json"), code) {
			t.Errorf("no attempt of a says %s", code)
		}
		m.run(exitOK, "db", "verify")
	})
}

// A process that is only stopped keeps what it has.
func TestStoppedIsNotGone(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine) {
		dir := t.TempDir()
		effects, till := filepath.Join(dir, "effects"), filepath.Join(dir, "go")
		stopped := m.start("run", "effect", "a", "--set", "till="+till, "--with", "path="+effects)
		m.until("it is begun", func() bool { return lines(t, effects, "start")["a"] == 1 })
		if err := stopped.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(till, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		m.run(exitUnfinished, "run", "effect", "a", "--set", "till="+till, "--with", "path="+effects, "--wait", "3s")
		if n := lines(t, effects, "start")["a"]; n != 1 {
			t.Errorf("begun %d times", n)
		}
		if err := stopped.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if code := m.exit(stopped); code != exitOK {
			t.Errorf("exit %d\n%s", code, stopped.stderr.String())
		}
	})
}
