package exec

import "golang.org/x/sys/unix"

// unread is how many bytes are in a pipe; fd is any of its ends.
func unread(fd uintptr) int {
	n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
	if err != nil {
		return 0
	}
	return n
}

// descriptor is the type of a file descriptor in package syscall.
type descriptor = int
