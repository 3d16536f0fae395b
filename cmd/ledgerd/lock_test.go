//go:build unix

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
