//go:build darwin || freebsd

package sqlite

import (
	"os"

	"golang.org/x/sys/unix"
)

// networkFS returns the name of the file system of a folder if it is not on a disk of this machine; else "".
func networkFS(dir string) (string, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return "", &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	if fs.Flags&unix.MNT_LOCAL != 0 {
		return "", nil
	}
	return unix.ByteSliceToString(fs.Fstypename[:]), nil
}

// mountPoint returns false: here only folders are mount points.
func mountPoint(string) bool { return false }
