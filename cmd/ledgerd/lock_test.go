package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
)

// locker starts lock run with a shell script and returns after the script has begun. The folder dir is for the files of
// the script, as $DIR.
func (m *machine) locker(flags, script string) (p *started, dir string) {
	m.t.Helper()
	dir = m.t.TempDir()
	m.env = append(m.env, "DIR="+dir)
	p = m.start(append(append([]string{"lock", "run", "l"}, strings.Fields(flags)...), "--", "sh", "-c",
		"echo $$ > $DIR/new; mv $DIR/new $DIR/pid; "+script)...)
	m.until("the command has begun", func() bool { return exists(filepath.Join(dir, "pid")) })
	return p, dir
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// number reads the number of a process from a file.
func number(t testing.TB, path string) int {
	t.Helper()
	text, err := os.ReadFile(path)
	must.OK(t, err)
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	must.OK(t, err)
	return n
}

func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err == nil { // a process that ended and was not waited for does not count
		_, after, _ := strings.Cut(string(stat), ") ")
		return !strings.HasPrefix(after, "Z")
	}
	return !exists("/proc/self") && syscall.Kill(pid, 0) == nil
}

// The command decides what a signal means; the lock is released after the command has ended.
func TestLockRunPassesSignalsOn(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		m.run(failure.ExitOK, "db", "migrate")
		for _, s := range []struct {
			name   string
			signal syscall.Signal
		}{{"TERM", syscall.SIGTERM}, {"INT", syscall.SIGINT}, {"HUP", syscall.SIGHUP}, {"USR1", syscall.SIGUSR1}} {
			p, dir := m.locker("--ttl 2s", `trap 'echo caught; touch $DIR/on' `+s.name+
				`; touch $DIR/trapped; until test -e $DIR/end; do sleep 0.05; done; exit 5`)
			m.until("the trap is set", func() bool { return exists(filepath.Join(dir, "trapped")) })
			for range 3 {
				must.OK(t, p.Process.Signal(s.signal))
			}
			m.until(s.name+" has arrived", func() bool { return exists(filepath.Join(dir, "on")) })
			m.run(failure.ExitTaken, "lock", "run", "l", "--", "true")
			must.OK(t, os.WriteFile(filepath.Join(dir, "end"), nil, 0o600))
			m.ends(p, 5)
		}
		p, _ := m.locker("", "exec sleep 60")
		must.OK(t, p.Process.Signal(syscall.SIGTERM))
		if code := m.exit(p); code != 128+15 {
			t.Errorf("exit %d: %s", code, p.stderr.String())
		}
		m.run(failure.ExitOK, "lock", "run", "l", "--", "true") // the lock is free
	})
}

// lock run is frozen for longer than the TTL, and another process gets the lock. When lock run continues, the command
// and all that it has started are ended, by force if need be.
func TestLockRunFrozen(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine) {
		m.run(failure.ExitOK, "db", "migrate")
		// The shell and its child ignore SIGTERM; the file has the number of the child.
		p, dir := m.locker("--ttl 1s --grace 300ms",
			`trap '' TERM; sh -c 'echo $$ > $DIR/n; mv $DIR/n $DIR/child; exec sleep 60'`)
		m.until("its child has begun", func() bool { return exists(filepath.Join(dir, "child")) })
		must.OK(t, p.Process.Signal(syscall.SIGSTOP))
		m.run(failure.ExitOK, "lock", "run", "l", "--wait", "1m", "--", "true")
		m.stop(p, syscall.SIGCONT, failure.ExitTaken, `lock "l" was lost while the command ran, so it was stopped`)
		for _, name := range []string{"pid", "child"} {
			pid := number(t, filepath.Join(dir, name))
			m.until(name+" is gone", func() bool { return !running(pid) })
		}
	})
}

// The holder of a lock is killed. Other processes get the lock after its TTL, and not earlier.
func TestLockRunKilled(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		m.run(failure.ExitOK, "db", "migrate")
		p, dir := m.locker("--ttl 4s", "exec sleep 60")
		must.OK(t, p.Process.Kill())
		killed := time.Now()
		<-p.done
		// The killed holder cannot end it.
		t.Cleanup(func() { _ = syscall.Kill(number(t, filepath.Join(dir, "pid")), syscall.SIGKILL) })
		m.run(failure.ExitTaken, "lock", "run", "l", "--", "true")
		m.run(failure.ExitOK, "lock", "run", "l", "--wait", "1m", "--", "true")
		if runtime.GOOS == "linux" {
			m.until("the command is gone, too", func() bool { return !running(number(t, filepath.Join(dir, "pid"))) })
		}
		if took := time.Since(killed); took > 5*4*time.Second {
			t.Errorf("it was had after %v", took)
		}
	})
}
