package chaostest

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// mount puts a small file system in memory over a folder. Root may do that.
func mount(dir string, size int64) error {
	if err := unix.Mount("ledger", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", size)); err != nil {
		return fmt.Errorf("mount a small file system at %s, which root may: %w", dir, err)
	}
	return nil
}

// unmount takes it away, also while files are open there.
func unmount(dir string) error { return unix.Unmount(dir, unix.MNT_DETACH) }
