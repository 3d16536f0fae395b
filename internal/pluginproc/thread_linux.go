package pluginproc

import (
	"errors"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent has the kernel kill the process when its host dies. It is for plugins that do not read stdin, or that
// are stopped by a signal.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// lockThread keeps the calling goroutine on its OS thread until unlock is called. For dieWithParent the parent is the
// thread that started the process.
func lockThread() (unlock func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// awaitEnd returns when the process has ended, and does not reap it. Until it is reaped, the system does not reuse the
// number of the process and of its group.
func awaitEnd(cmd *exec.Cmd) {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
