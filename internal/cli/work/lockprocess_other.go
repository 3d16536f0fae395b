//go:build unix && !linux

package work

import (
	"syscall"
)

// dieWithParent does nothing: only Linux can end a command with its parent.
func dieWithParent(*syscall.SysProcAttr) {}
