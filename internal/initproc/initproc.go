//go:build unix

// Package initproc lets a program be process 1 of a container. The kernel makes orphans children of process 1. It
// must wait for them, or they remain as zombies. A plugin's command may leave orphans behind.
package initproc

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

// Needed reports whether this process is process 1.
func Needed() bool { return os.Getpid() == 1 }

// Main calls Run and ends the process with its exit code.
func Main() {
	code, err := Run()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: as process 1: %v\n", os.Args[0], err)
		code = 1
	}
	os.Exit(code)
}

// Run starts this program once more as a child, passes signals on to it, and waits for it and for orphans. code is the
// exit code of the child, or 128 and the number of the signal that ended it.
func Run() (code int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	signals := make(chan os.Signal, 64)
	signal.Notify(signals) // before the child starts, so that no signal is lost
	defer signal.Stop(signals)
	child, err := syscall.ForkExec(self, os.Args, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2},
		Sys: group()})
	if err != nil {
		return 0, err
	}
	go func() {
		for s := range signals {
			switch s {
			case syscall.SIGCHLD, syscall.SIGPIPE, syscall.SIGURG: // these are about this process
			default:
				_ = syscall.Kill(child, s.(syscall.Signal)) // fails if the child has ended
			}
		}
	}()
	for {
		var status syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &status, 0, nil); {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, err
		case pid == child && status.Signaled():
			return 128 + int(status.Signal()), nil
		case pid == child:
			return status.ExitStatus(), nil
		}
	}
}

// group gives the child a process group of its own. Else it would get Ctrl-C twice: from the terminal, and passed on by
// this process. On a terminal the group is the foreground group.
func group() *syscall.SysProcAttr {
	if term.IsTerminal(0) {
		return &syscall.SysProcAttr{Foreground: true, Ctty: 0}
	}
	return &syscall.SysProcAttr{Setpgid: true}
}
