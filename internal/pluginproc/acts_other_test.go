//go:build unix && !linux

package pluginproc_test

import "syscall"

func outliveParent() {}

// alive reports whether a process exists.
func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }
