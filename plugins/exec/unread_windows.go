package exec

import "syscall"

func unread(uintptr) int { return 0 }

// descriptor is the type of a file descriptor in package syscall.
type descriptor = syscall.Handle
