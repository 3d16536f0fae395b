//go:build !linux

package pluginproc

import (
	"os/exec"
	"syscall"
)

// Linux can kill a child when its parent dies, and wait for a child without reaping it; other systems cannot do both.
// There only the end of stdin ends a plugin; see package wire.

func dieWithParent(*syscall.SysProcAttr) {}

func lockThread() (unlock func()) { return func() {} }

func awaitEnd(cmd *exec.Cmd) { _ = cmd.Wait() }
