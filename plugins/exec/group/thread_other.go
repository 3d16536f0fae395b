//go:build unix && !linux

package group

import "os/exec"

// dieTogether does nothing: only Linux signals children when their parent dies.
func dieTogether(*exec.Cmd) (unlock func()) { return func() {} }
