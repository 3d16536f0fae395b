//go:build unix

package source

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// move renames a file, also into another folder of the file system, and overwrites nothing. Owner and mode stay. If the
// system has no such call, move links and unlinks the file. Linux refuses a link to another user's file
// (fs.protected_hardlinks).
func move(from *os.Root, old string, to *os.Root, name string) error {
	source, err := from.Open(".")
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := to.Open(".")
	if err != nil {
		return err
	}
	defer target.Close()
	err = renameNew(int(source.Fd()), old, int(target.Fd()), name)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		if err = unix.Linkat(int(source.Fd()), old, int(target.Fd()), name, 0); err == nil {
			err = unix.Unlinkat(int(source.Fd()), old, 0)
		}
	}
	if err != nil {
		return &os.LinkError{Op: "move", Old: filepath.Join(from.Name(), old), New: filepath.Join(to.Name(), name), Err: err}
	}
	return nil
}

// chown gives a copy the owner of its file, as far as this process may.
func chown(out *os.File, info fs.FileInfo) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		_ = out.Chown(int(st.Uid), int(st.Gid))
	}
}
