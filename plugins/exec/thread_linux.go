package exec

import (
	"runtime"
	"syscall"
)

// dieWithParent has the kernel kill a command when the plugin dies: a belt beside the keeper, for a
// command that it has not been told of yet.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// lockThread keeps the calling goroutine on its OS thread, which the kernel takes for the parent,
// until the function it returns is called.
func lockThread() (unlock func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}
