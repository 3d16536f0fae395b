package pluginstore

import (
	"os"

	"golang.org/x/sys/windows"
)

// await locks a file as soon as no other process has locked it.
func await(lock *os.File) error {
	return windows.LockFileEx(windows.Handle(lock.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, new(windows.Overlapped))
}
