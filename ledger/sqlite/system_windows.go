package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/windows"
)

// networkFS returns the kind of the drive of a folder if the drive is on another machine; else "".
func networkFS(dir string) (string, error) {
	root, err := windows.UTF16PtrFromString(filepath.VolumeName(dir) + `\`)
	if err == nil && windows.GetDriveType(root) == windows.DRIVE_REMOTE {
		return "a network drive", nil
	}
	return "", err
}

// mountPoint returns false: on Windows only a folder can be a mount point.
func mountPoint(string) bool { return false }

// mayUse returns nil: an access list is judged when the file is opened.
func mayUse(string, bool) error { return nil }

// hardLinks returns the number of names of a file; 0 if it is not known.
func hardLinks(path string, _ fs.FileInfo) uint64 {
	f, err := os.Open(path) // unlike on Unix, closing it drops no lock of another handle
	if err != nil {
		return 0
	}
	defer f.Close()
	var info windows.ByHandleFileInformation
	if windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &info) != nil {
		return 0
	}
	return uint64(info.NumberOfLinks)
}

// copyOwner does nothing: a new file has the access list of its folder.
func (f *file) copyOwner(*file) error { return nil }

// giveToFolder does nothing: a new file has the access list of its folder.
func giveToFolder(*os.File) {}

// openLock opens a file to be locked.
func openLock(path string) (*os.File, error) { return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) }

// tryLock locks a file, unless another process has locked it.
func tryLock(l *os.File) (locked bool, err error) {
	err = lockBytes(l, 0, 1)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return false, nil
	}
	return err == nil, err
}

// dropLock frees a lock. It does not remove the file: on Windows a file that is being removed cannot be opened.
func dropLock(l *os.File) { l.Close() }

// lockAll locks the bytes of a file that SQLite locks, against all processes.
func lockAll(place *os.File) error { return lockBytes(place, firstLock, lockedBytes) }

func lockBytes(f *os.File, first, length uint32) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY,
		0, length, 0, &windows.Overlapped{Offset: first})
}

// replacesOpenFiles means that an open file can be removed, and another one take its name.
const replacesOpenFiles = false

// syncDir does nothing: NTFS logs names by itself.
func syncDir(string) error { return nil }

// freeSpace returns how many bytes this process may still write in a folder.
func freeSpace(dir string) (free uint64, err error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err == nil {
		err = windows.GetDiskFreeSpaceEx(name, &free, nil, nil)
	}
	return free, err
}

func pause(d time.Duration) { time.Sleep(d) }

// uriPath is a path as it stands in a URI: /C:/folder/file.
func uriPath(path string) string { return "/" + filepath.ToSlash(path) }
