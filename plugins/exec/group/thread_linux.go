package group

import (
	"os/exec"
	"runtime"
	"syscall"
)

// dieTogether has the kernel kill a command when this process dies, for the time in which the keeper does not
// know the command yet. For the kernel the parent is the OS thread that starts the command, so the goroutine
// stays on this thread until it calls unlock.
func dieTogether(cmd *exec.Cmd) (unlock func()) {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}
