package process_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/process"
)

// sleeper starts a process that sleeps, with more variables in its environment.
func sleeper(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.Env = append(os.Environ(), env...)
	must.OK(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed, or has been waited for
	})
	return cmd
}

// agentOf returns an agent with this process.
func agentOf(t *testing.T, pid int) ledger.Agent {
	t.Helper()
	host, err := os.Hostname()
	must.OK(t, err)
	a := ledger.Agent{Host: host, PID: pid, Process: process.Name(pid)}
	if a.Process == "" {
		t.Fatal("the process has no name")
	}
	return a
}

// becomesGone waits until an agent is gone.
func becomesGone(t *testing.T, a ledger.Agent) {
	t.Helper()
	for late := time.Now().Add(time.Minute); !a.Gone(); {
		if time.Now().After(late) {
			t.Fatalf("%+v is not known to be gone", a)
		}
	}
}

// A process is gone once it has ended, whether or not its parent has waited for it. It is not gone while it is only
// stopped.
func TestGone(t *testing.T) {
	cmd := sleeper(t)
	a := agentOf(t, cmd.Process.Pid)
	if a.Gone() {
		t.Error("a process that lives is gone")
	}
	must.OK(t, cmd.Process.Signal(syscall.SIGSTOP))
	if a.Gone() {
		t.Error("a process that is stopped is gone")
	}
	must.OK(t, cmd.Process.Kill())
	becomesGone(t, a) // a zombie
	_ = cmd.Wait()    // it was killed
	becomesGone(t, a)
	if agentOf(t, os.Getpid()).Gone() || agentOf(t, os.Getpid()).Process != process.This() {
		t.Error("this process is gone, or has another name")
	}
}

// A process is gone if another one has its number now.
func TestGoneNumberOfAnother(t *testing.T) {
	a := agentOf(t, sleeper(t).Process.Pid)
	a.Process += "0" // the last part of the name is the time of the start
	if !a.Gone() {
		t.Errorf("%s lives", a.Process)
	}
}

// Gone returns false where it cannot know.
func TestGoneDoubt(t *testing.T) {
	cmd := sleeper(t)
	dead := agentOf(t, cmd.Process.Pid)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	becomesGone(t, dead)
	parts := strings.Split(dead.Process, "/")
	if len(parts) != 6 {
		t.Fatalf("%q", parts)
	}
	for i, what := range []string{"boot", "namespace of numbers", "namespace of times", "user", "number"} {
		other := append([]string(nil), parts...)
		other[i] = fmt.Sprint("1", parts[i])
		a := dead
		if a.Process = strings.Join(other, "/"); a.Gone() {
			t.Errorf("one of another %s is gone: %s", what, a.Process)
		}
	}
	for what, change := range map[string]func(*ledger.Agent){
		"of another host":       func(a *ledger.Agent) { a.Host += "x" },
		"without a host":        func(a *ledger.Agent) { a.Host = "" },
		"without a name":        func(a *ledger.Agent) { a.Process = "" },
		"with a cut name":       func(a *ledger.Agent) { a.Process = strings.Join(parts[:5], "/") },
		"whose number is wrong": func(a *ledger.Agent) { a.PID++ },
	} {
		a := dead
		if change(&a); a.Gone() {
			t.Errorf("one %s is gone", what)
		}
	}
}

// A process is not gone as long as something lives that it has started.
func TestGoneLeavesChildren(t *testing.T) {
	cmd := sleeper(t)
	a := agentOf(t, cmd.Process.Pid)
	child := sleeper(t, process.Variable+"="+a.Process)
	sleeper(t, process.Variable+"="+a.Process+"1") // that of another process
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if a.Gone() {
		t.Error("gone, though a process lives that it has started")
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	becomesGone(t, a)
}
