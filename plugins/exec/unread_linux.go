package exec

import "golang.org/x/sys/unix"

// unread is how many bytes lie in a pipe, asked at any of its ends.
func unread(fd uintptr) int {
	n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
	if err != nil {
		return 0
	}
	return n
}

// descriptor is a file to package syscall.
type descriptor = int
