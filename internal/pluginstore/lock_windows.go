package pluginstore

import (
	"os"

	"golang.org/x/sys/windows"
)

// errLocked is the error of try if another process has locked the file.
const errLocked = windows.ERROR_LOCK_VIOLATION

// try locks a file.
func try(lock *os.File) error {
	return windows.LockFileEx(windows.Handle(lock.Fd()),
		windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
}
