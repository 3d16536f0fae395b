package group

import (
	"os/exec"
	"runtime"
	"syscall"
)

// dieTogether has the kernel kill a command when this process dies: a belt beside the keeper, for one
// that it has not been told of yet. The parent is, to the kernel, the OS thread that starts the
// command, so the caller keeps it until it calls the function that is returned.
func dieTogether(cmd *exec.Cmd) (unlock func()) {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}
