package work

import (
	"syscall"
)

// dieWithParent makes the kernel end the command when this process dies and so no longer renews the lock.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGTERM }
