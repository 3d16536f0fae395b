package pluginproc

import (
	"errors"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent has the kernel kill the process when we die: a belt for plugins that do not
// read stdin, or that are stopped.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// lockThread keeps the calling goroutine on its OS thread, since the kernel takes that for the
// parent, until the function it returns is called.
func lockThread() (unlock func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// awaitEnd returns when the process has ended. It is not reaped yet: until then no other process
// gets its number, the one of its group as well.
func awaitEnd(cmd *exec.Cmd) {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
