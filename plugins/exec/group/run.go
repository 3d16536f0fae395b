//go:build unix

// Package group runs commands so that no process that they start outlives them. Each command has a process
// group of its own, and the group is ended as a whole: when the command is to end, when it has ended and has left
// processes, and, by a [Keeper], when this process is killed. A process that has left for another group goes on.
package group

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Run starts a command and returns when the command and its whole group have ended. When ctx ends, the group gets
// SIGTERM, and after grace SIGKILL; stopped reports whether ctx ended it. state is that of the command, nil if err is
// not nil (usually the command could not be started). The caller reads and closes the pipes of cmd. begun, if not nil,
// is called when the Keeper knows the group: processes that the command starts later end with it even if this process
// is killed.
func (k *Keeper) Run(ctx context.Context, cmd *exec.Cmd, grace time.Duration, begun func()) (state *os.ProcessState,
	stopped bool, err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	defer dieTogether(cmd)()
	if err := cmd.Start(); err != nil { // closes the pipes
		return nil, false, err
	}
	group := cmd.Process.Pid
	ended := make(chan struct{})
	go func() {
		state, err = cmd.Process.Wait() // cmd.Wait would close the pipes
		close(ended)
	}()
	if err := k.add(group); err != nil {
		kill(group, syscall.SIGKILL)
		<-ended
		return nil, false, err
	}
	defer k.del(group)
	if begun != nil {
		begun()
	}
	select {
	case <-ended:
	case <-ctx.Done():
		stopped = true
		terminate(group, grace)
	}
	kill(group, syscall.SIGKILL) // what the command has left
	<-ended
	return state, stopped, err
}

// poll is the interval of checks whether a process group is gone; there is no notice of it.
const poll = 20 * time.Millisecond

// terminate asks a process group to end, and returns when all of it has, or the grace is over.
func terminate(group int, grace time.Duration) {
	kill(group, syscall.SIGTERM)
	kill(group, syscall.SIGCONT) // a stopped process would not get SIGTERM
	late := time.After(grace)
	look := time.Tick(poll)
	for kill(group, 0) { // the group exists at least until Wait has returned
		select {
		case <-late:
			return
		case <-look:
		}
	}
}

// kill sends a signal to a process group, and reports whether it exists.
func kill(group int, s syscall.Signal) bool {
	return !errors.Is(syscall.Kill(-group, s), syscall.ESRCH)
}
