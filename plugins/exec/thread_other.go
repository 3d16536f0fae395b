//go:build unix && !linux

package exec

import osexec "os/exec"

// Only Linux tells children of their parent's death; elsewhere the keeper does it alone.
func dieTogether(*osexec.Cmd) (unlock func()) { return func() {} }
