//go:build unix

// Package group runs commands so that nothing that they start outlives them. Each has a process group of
// its own: all of it is asked to end, and killed, as one. That holds for a command that is asked to end,
// for processes left of one that has ended, and, by a [Keeper], for those that run while this process is
// killed. It does not reach a process that has left for a group of its own.
package group

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Run starts a command and returns when it and all of its group have ended. When ctx ends they get
// SIGTERM, and SIGKILL if they are still there after grace; stopped reports it. The state is that of
// the command itself; with an error there is none, mostly because it could not be started. The pipes of
// cmd stay the caller's to read and to close. begun, unless it is nil, is called once the group is kept: what the
// command starts from then on ends with it even if this process is killed.
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
	kill(group, syscall.SIGKILL) // the rest of it
	<-ended
	return state, stopped, err
}

// poll is the interval of checks whether a process group is gone; there is no notice of it.
const poll = 20 * time.Millisecond

// terminate asks a process group to end, and returns when all of it has, or the grace is over.
func terminate(group int, grace time.Duration) {
	kill(group, syscall.SIGTERM)
	kill(group, syscall.SIGCONT) // one that is stopped would not see it
	late := time.After(grace)
	look := time.Tick(poll)
	for kill(group, 0) { // until the command has been waited for the group exists
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
