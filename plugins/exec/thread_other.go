//go:build unix && !linux

package exec

import "syscall"

// Only Linux tells children of their parent's death; elsewhere the keeper does it alone.

func dieWithParent(*syscall.SysProcAttr) {}

func lockThread() (unlock func()) { return func() {} }
