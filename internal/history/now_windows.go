package history

import "golang.org/x/sys/windows"

// Now returns the time by the clock of histories, in nanoseconds.
func Now() int64 { return int64(windows.DurationSinceBoot()) }
