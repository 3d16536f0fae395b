//go:build unix

package history

import "golang.org/x/sys/unix"

// Now returns the time by the clock of histories, CLOCK_MONOTONIC in nanoseconds.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // every kernel has it
	}
	return ts.Nano()
}
