//go:build unix

package pluginstore

import (
	"errors"
	"os"
	"syscall"
)

// errLocked is the error of try if another process has locked the file.
const errLocked = syscall.EWOULDBLOCK

// try locks a file.
func try(lock *os.File) (err error) {
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	return err
}
