package main

import "syscall"

// dieWithParent has the kernel end a command when we die: nobody renews its lock any more then.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGTERM }
