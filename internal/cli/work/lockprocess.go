package work

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/ledger/locks"
)

// groupPoll is the time between two checks whether a process group has ended. The system has no event for it.
const groupPoll = 20 * time.Millisecond

// locked is a command that runs under a lock.
type locked struct {
	*exec.Cmd
	alone bool          // it has no process group of its own
	ended chan struct{} // closed when it has ended
}

// runLocked runs a command until it ends, and returns its exit code. If the lock is lost, held ends: then the command
// is stopped and the error is locks.ErrLost.
func runLocked(held context.Context, a *app.App, l *locks.Lock, argv []string, grace time.Duration) (int, error) {
	// On Linux the command dies with the thread that started it (Pdeathsig), so this goroutine keeps its thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, passedOn...)
	defer signal.Stop(signals)
	a.HandOver()
	if a.Soft.Err() != nil { // before the command began
		return 0, a.Soft.Err()
	}
	// The command gets a process group of its own, so that all its processes can be ended. On a terminal it does not: such
	// a group would be in the background, could not read, and Ctrl-C and Ctrl-Z would not reach it.
	c := &locked{Cmd: exec.Command(argv[0], argv[1:]...), alone: noGroups || app.IsTerminal(a.Stdin),
		ended: make(chan struct{})}
	c.Stdin, c.Stdout, c.Stderr, c.Env = a.Stdin, a.Stdout.To, a.Stderr, environment(l)
	c.prepare()
	if err := c.Start(); err != nil {
		return 0, failure.New(failure.ExitError, "command_start", fmt.Sprintf("cannot run %s: %v", argv[0], err), "")
	}
	go func() {
		_ = c.Wait() // ProcessState has how it ended
		close(c.ended)
	}()
	for {
		select {
		case <-c.ended:
			return c.code(), nil
		case s := <-signals:
			if !c.alone || s != syscall.SIGINT && s != syscall.SIGQUIT { // the terminal sends these to the command itself
				c.signal(s.(syscall.Signal))
			}
		case <-held.Done():
			c.stop(grace)
			return 0, context.Cause(held)
		}
	}
}

// stop asks the command and its process group to end, kills them after grace, and returns when they have ended.
func (c *locked) stop(grace time.Duration) {
	c.ask()
	late := time.NewTimer(grace)
	defer late.Stop()
	look := time.Tick(groupPoll)
	for !c.gone() {
		select {
		case <-late.C:
			c.signal(syscall.SIGKILL)
			<-c.ended
			return
		case <-look:
		}
	}
}

// gone reports whether the command has ended, and no process is left in its group.
func (c *locked) gone() bool {
	select {
	case <-c.ended:
		return c.alone || !c.signal(0)
	default:
		return false
	}
}

// code returns the exit code of a command that has ended; 128+n if signal n ended it.
func (c *locked) code() int {
	if ws, ok := c.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return c.ProcessState.ExitCode()
}
