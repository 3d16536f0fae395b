//go:build unix

package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// mayUse returns an error if this process must not read and write a file, or must not make files in a folder.
func mayUse(path string, folder bool) error {
	mode := uint32(unix.R_OK | unix.W_OK)
	if folder {
		mode = unix.W_OK | unix.X_OK
	}
	if err := unix.Access(path, mode); err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

// hardLinks returns the number of names of a file; 0 if it is not known.
func hardLinks(_ string, info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink)
	}
	return 0
}

// copyOwner gives f the owner and the mode of another file, because the service that opens it may be another user.
func (f *file) copyOwner(other *file) error {
	var st unix.Stat_t
	if err := unix.Stat(other.path, &st); err != nil {
		return err
	}
	if err := os.Chmod(f.path, fs.FileMode(st.Mode)&fs.ModePerm); err != nil {
		return err
	}
	return os.Chown(f.path, int(st.Uid), int(st.Gid))
}

// giveToFolder gives a new file of root the owner of its folder, as far as this process may: the service that opens it
// is that user.
func giveToFolder(f *os.File) {
	var st unix.Stat_t
	if os.Geteuid() == 0 && unix.Stat(filepath.Dir(f.Name()), &st) == nil && st.Uid != 0 {
		_ = f.Chown(int(st.Uid), int(st.Gid))
	}
}

// openLock opens a file to be locked, but follows no link.
func openLock(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
}

// tryLock locks a file, unless another process has locked it.
func tryLock(l *os.File) (locked bool, err error) {
	err = unix.Flock(int(l.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return err == nil, err
}

// dropLock removes the file of a lock while the lock is held, so that no other process has a new one.
func dropLock(l *os.File) {
	os.Remove(l.Name())
	l.Close()
}

// lockAll locks the bytes of a file that SQLite locks, against all processes.
func lockAll(place *os.File) error {
	return unix.FcntlFlock(place.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: firstLock, Len: lockedBytes})
}

// replacesOpenFiles means that an open file can be removed, and another one take its name.
const replacesOpenFiles = true

// syncDir makes the names in a folder durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// freeSpace returns how many bytes this process may still write in a folder.
func freeSpace(dir string) (uint64, error) {
	var fs unix.Statfs_t
	err := unix.Statfs(dir, &fs)
	return uint64(max(0, int64(fs.Bavail))) * uint64(fs.Bsize), err // on FreeBSD it is below 0 once the reserve is used
}

// pause sleeps precisely. On Linux, timers of an idle Go program are precise only to a millisecond, and the lock is
// usually held for less.
func pause(d time.Duration) {
	tv := unix.NsecToTimeval(int64(d))
	unix.Select(0, nil, nil, nil, &tv) // a signal may end it early: no harm
}

// uriPath is a path as it stands in a URI.
func uriPath(path string) string { return path }
