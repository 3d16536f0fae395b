package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
)

// A worker that is asked to stop begins no more items. Items that its plugin has not begun are ready for others at
// once, while running items continue. Of a kind whose items must not be repeated, no item comes into doubt by that.
func TestStopHandsBack(t *testing.T) {
	t.Parallel()
	for command, onLost := range map[string]string{"work": "doubt", "run": "repeat"} {
		t.Run(command+" "+onLost, func(t *testing.T) {
			t.Parallel()
			stopHandsBack(t, command, onLost)
		})
	}
}

func stopHandsBack(t *testing.T, command, onLost string) {
	m := newMachine(t, "sqlite:"+filepath.Join(t.TempDir(), "ledger.db"))
	dir := t.TempDir()
	effects, till := filepath.Join(dir, "effects"), filepath.Join(dir, "go")
	keys := []string{"a", "b", "c", "d", "e", "f"}
	m.run(failure.ExitOK, append([]string{"add", "effect", "--set", "till=" + till}, keys...)...)
	m.run(failure.ExitOK, "kind", "set", "effect", "--on-lost", onLost)
	args := []string{"work", "--kind", "effect"}
	if command == "run" {
		args = append([]string{"run", "effect"}, keys...)
	}
	p := m.start(append(args, "--with", "path="+effects, "-j", "1", "-o", "json")...)
	m.until("one is begun", func() bool { return len(lines(t, effects, "start")) == 1 })
	must.OK(t, p.Process.Signal(syscall.SIGTERM))
	count := func(state string) int { return m.count("state:" + state) }
	m.until("the others are given back", func() bool { return count("ready") == len(keys)-1 })
	if n := count("leased"); n != 1 {
		t.Errorf("%d are leased while one runs", n)
	}
	must.OK(t, os.WriteFile(till, nil, 0o600))
	if code := m.exit(p); code != 128+int(syscall.SIGTERM) {
		t.Errorf("exit %d\n%s", code, p.stderr.String())
	}
	if n := len(lines(t, effects, "start")); n != 1 {
		t.Errorf("%d were begun", n)
	}
	got := fmt.Sprint(count("done"), count("ready"), count("doubt"))
	if want := fmt.Sprint(1, len(keys)-1, 0); got != want {
		t.Errorf("done, ready, doubt: %s, want %s", got, want)
	}
	for _, key := range keys {
		for _, a := range m.show(key).Attempts {
			if a.Outcome != "done" && a.Outcome != "released" {
				t.Errorf("%s: %+v", key, a)
			}
		}
	}
	m.run(failure.ExitOK, "db", "verify")
}
