//go:build unix && !linux

package group

import "os/exec"

// Only Linux signals children at their parent's death; elsewhere the keeper does it alone.
func dieTogether(*exec.Cmd) (unlock func()) { return func() {} }
