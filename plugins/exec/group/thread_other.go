//go:build unix && !linux

package group

import "os/exec"

// Only Linux tells children of their parent's death; elsewhere the keeper does it alone.
func dieTogether(*exec.Cmd) (unlock func()) { return func() {} }
