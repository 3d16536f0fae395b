//go:build unix

package pluginproc

import (
	"io/fs"
	"os"
	"syscall"
)

// NoPlugins is why no plugin starts on this system; nil where they do.
func NoPlugins() *StartError { return nil }

// OwnGroup puts a process into a process group of its own.
func OwnGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// KillGroup sends a signal to a process group. It fails if the group is empty.
func KillGroup(group int, sig syscall.Signal) error { return syscall.Kill(-group, sig) }

// tryLock locks a file, unless another process has locked it.
func tryLock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

// owner returns the number of the user to whom a file belongs.
func owner(info fs.FileInfo) (uid int, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if ok {
		uid = int(st.Uid)
	}
	return uid, ok
}
