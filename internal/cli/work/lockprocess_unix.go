//go:build unix

package work

import (
	"errors"
	"os"
	"syscall"
)

// noGroups means that commands have no process groups on this system.
const noGroups = false

// passedOn are the signals that are passed on to the command.
var passedOn = []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1,
	syscall.SIGUSR2}

// prepare gives the command its process group.
func (c *locked) prepare() {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: !c.alone}
	dieWithParent(c.SysProcAttr)
}

// signal sends a signal to the command's process group, and reports whether a process of it was left.
func (c *locked) signal(s syscall.Signal) bool {
	pid := -c.Process.Pid
	if c.alone {
		pid = c.Process.Pid
	}
	return !errors.Is(syscall.Kill(pid, s), syscall.ESRCH)
}

// ask asks the command to end.
func (c *locked) ask() {
	c.signal(syscall.SIGTERM)
	c.signal(syscall.SIGCONT) // a stopped process gets SIGTERM only when it continues
}
