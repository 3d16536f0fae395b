package chaostest

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// mount mounts a small file system in memory on a folder. That needs root.
func mount(dir string, size int64) error {
	if err := unix.Mount("ledger", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", size)); err != nil {
		return fmt.Errorf("mount a small file system at %s, which root may: %w", dir, err)
	}
	return nil
}

// unmount removes it, even while files on it are open.
func unmount(dir string) error { return unix.Unmount(dir, unix.MNT_DETACH) }
