//go:build unix && !linux

package exec

// unread is how many bytes are in a pipe. Only Linux tells it at the end for writing. Elsewhere an item that was sent
// to a process at the moment of its end counts as begun: a failed attempt.
func unread(uintptr) int { return 0 }

// descriptor is the type of a file descriptor in package syscall.
type descriptor = int
