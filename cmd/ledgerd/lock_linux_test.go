package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
)

// openTerminal makes a terminal: keyboard takes what is typed, and tty is the side of the program.
func openTerminal(t *testing.T) (keyboard, tty *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	must.OK(t, err)
	t.Cleanup(func() { keyboard.Close() })
	must.OK(t, unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	must.OK(t, err)
	if tty, err = os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	return keyboard, tty
}

// The command can read what is typed and gets Ctrl-C. When the lock is lost the command is ended, but not the other
// processes of its process group.
func TestLockRunOnATerminal(t *testing.T) {
	m := newMachine(t, "sqlite:"+filepath.Join(t.TempDir(), "ledger.db"))
	m.run(failure.ExitOK, "db", "migrate")
	script := func(lines string) (p *started, dir string, keyboard *os.File) {
		dir = t.TempDir()
		keyboard, tty := openTerminal(t)
		cmd := exec.Command(m.program, "lock", "run", "l", "--ttl", "1s", "--", "sh", "-c", lines)
		cmd.Stdin, cmd.Dir = tty, dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		return m.launch(cmd), dir, keyboard
	}
	p, dir, keyboard := script(
		`trap 'exit 9' INT; read line; echo "$line" > new; mv new read; while :; do sleep 0.05; done`)
	must.Do(t)(keyboard.WriteString("hello\n"))
	m.until("it has read", func() bool { return exists(filepath.Join(dir, "read")) })
	if text, err := os.ReadFile(filepath.Join(dir, "read")); string(text) != "hello\n" || err != nil {
		t.Errorf("it read %q, %v", text, err)
	}
	must.Do(t)(keyboard.WriteString("\x03"))
	m.ends(p, 9)
	p, dir, _ = script(`touch begun; exec sleep 60`)
	m.until("it has begun", func() bool { return exists(filepath.Join(dir, "begun")) })
	m.run(failure.ExitOK, "lock", "release", "l", "-y")
	m.ends(p, failure.ExitTaken, "was lost")
}

// Ctrl-C ends a command that asks whether to act. Nothing is changed.
func TestQuestionIsInterrupted(t *testing.T) {
	m := newMachine(t, "sqlite:"+filepath.Join(t.TempDir(), "ledger.db"))
	m.run(failure.ExitOK, "db", "migrate")
	m.run(failure.ExitOK, "add", "effect", "a", "b")
	keyboard, tty := openTerminal(t)
	cmd := exec.Command("sh", "-c", `exec "$0" cancel --where kind:effect 2>/dev/tty`, m.program)
	cmd.Stdin = tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	p := m.launch(cmd)
	shown, text := make([]byte, 1000), ""
	for until := time.Now().Add(patience); !strings.Contains(text, "[y/N]"); {
		must.OK(t, keyboard.SetReadDeadline(until))
		n, err := keyboard.Read(shown)
		must.OK(t, err)
		text += string(shown[:n])
	}
	must.Do(t)(keyboard.WriteString("\x03"))
	m.ends(p, 130)
	if out := m.run(failure.ExitOK, "ls", "-o", "csv", "--columns", "state"); out != "state\nready\nready\n" {
		t.Error(out)
	}
}

// The command ends with a lock run that is killed.
func TestLockRunKilled(t *testing.T) {
	m := newMachine(t, "sqlite:"+filepath.Join(t.TempDir(), "ledger.db"))
	m.run(failure.ExitOK, "db", "migrate")
	p, dir := m.locker("", "exec sleep 60")
	pid, err := os.ReadFile(filepath.Join(dir, "pid"))
	must.OK(t, err)
	must.OK(t, p.Process.Kill())
	m.until("the command is gone", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%s/stat", strings.TrimSpace(string(pid))))
		return err != nil || strings.Contains(string(stat), ") Z") // it may be that nothing has waited for it
	})
}
