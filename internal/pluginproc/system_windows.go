package pluginproc

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// NoPlugins is why no plugin starts on this system. The rest of this file is never reached.
func NoPlugins() *StartError {
	return &StartError{
		Step: StepCheck, Err: errors.ErrUnsupported,
		Problem: "plugins do not run on Windows, which has no process groups to end them with",
		Hint:    "run this worker on Linux with --db URL, or work the items by claim and finish, or over HTTP",
	}
}

// OwnGroup is for Unix.
func OwnGroup() *syscall.SysProcAttr { return nil }

// KillGroup is for Unix.
func KillGroup(int, syscall.Signal) error { return errors.ErrUnsupported }

func tryLock(*os.File) error { return errors.ErrUnsupported }

func owner(fs.FileInfo) (uid int, ok bool) { return 0, false }
