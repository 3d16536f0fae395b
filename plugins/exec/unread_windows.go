package exec

import "syscall"

func unread(uintptr) int { return 0 }

// descriptor is a file to package syscall.
type descriptor = syscall.Handle
