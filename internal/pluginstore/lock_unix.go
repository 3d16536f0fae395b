//go:build unix

package pluginstore

import (
	"errors"
	"os"
	"syscall"
)

// await locks a file as soon as no other process has locked it.
func await(lock *os.File) (err error) {
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
	}
	return err
}
