//go:build unix && !linux

package work

import (
	"syscall"
)

// Only Linux tells a command of our death.
func dieWithParent(*syscall.SysProcAttr) {}
