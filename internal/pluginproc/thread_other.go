//go:build unix && !linux

package pluginproc

import (
	"os/exec"
	"syscall"
)

// Only Linux signals children at their parent's death, and lets every system's program wait for a
// child without reaping it. Elsewhere the end of stdin does it alone; see package wire.

func dieWithParent(*syscall.SysProcAttr) {}

func lockThread() (unlock func()) { return func() {} }

func awaitEnd(cmd *exec.Cmd) { _ = cmd.Wait() }
