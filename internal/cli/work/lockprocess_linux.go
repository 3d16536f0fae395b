package work

import (
	"syscall"
)

// dieWithParent has the kernel end a command when we die: its lock is not renewed any more then.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGTERM }
