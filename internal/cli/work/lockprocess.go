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

// groupPoll is the time between looks whether a process group is gone. No event tells that.
const groupPoll = 20 * time.Millisecond

// locked is a command that runs under a lock.
type locked struct {
	*exec.Cmd
	alone bool // it has no process group of its own
	ended chan struct{}
}

// runLocked runs a command until it ends, and gives its exit code. When held ends because the lock is
// lost it is stopped: then the error is ErrLost.
func runLocked(held context.Context, a *app.App, l *locks.Lock, argv []string, grace time.Duration) (int, error) {
	// A thread of ours is the command's parent: on Linux it dies with it, so it must stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, passedOn...)
	defer signal.Stop(signals)
	a.HandOver()
	if a.Soft.Err() != nil { // before the command began
		return 0, a.Soft.Err()
	}
	// A group of its own, so that all of it can be ended. On a terminal it would be in the
	// background there: it could not read, and Ctrl-C and Ctrl-Z would not reach it.
	c := &locked{Cmd: exec.Command(argv[0], argv[1:]...), alone: noGroups || app.IsTerminal(a.Stdin),
		ended: make(chan struct{})}
	c.Stdin, c.Stdout, c.Stderr, c.Env = a.Stdin, a.Stdout.To, a.Stderr, environment(l)
	c.prepare()
	if err := c.Start(); err != nil {
		return 0, failure.New(failure.ExitError, "command_start", fmt.Sprintf("cannot run %s: %v", argv[0], err), "")
	}
	go func() {
		_ = c.Wait() // how it ended is in its state
		close(c.ended)
	}()
	for {
		select {
		case <-c.ended:
			return c.code(), nil
		case s := <-signals:
			if !c.alone || s != syscall.SIGINT && s != syscall.SIGQUIT { // the terminal has sent these to it, too
				c.signal(s.(syscall.Signal))
			}
		case <-held.Done():
			c.stop(grace)
			return 0, context.Cause(held)
		}
	}
}

// stop ends the command, and what it has started in its group, and returns when it has ended.
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

// code is the exit code of a command that has ended, as a shell gives it.
func (c *locked) code() int {
	if ws, ok := c.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return c.ProcessState.ExitCode()
}
