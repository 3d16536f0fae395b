package itemfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// openRegular is Open without denied.
func openRegular(path string) (*os.File, error) { return open(path, os.Geteuid()) }

// open is openRegular for a process of the user uid.
func open(path string, uid int) (*os.File, error) {
	w := walk{uid: uint32(uid)}
	at, err := w.follow(nil, path, false)
	if err != nil {
		return nil, pathError(path, err)
	}
	defer at.Close()
	info, err := at.Stat()
	if err != nil {
		return nil, pathError(path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, notRegular(info.Mode())
	}
	fd, err := patiently(func() (int, error) {
		return unix.Open("/proc/self/fd/"+strconv.Itoa(int(at.Fd())), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if err == unix.ENOENT { // the file exists, because it is open
		err = errors.New("/proc is not mounted, and is needed to open files safely")
	}
	if err != nil {
		return nil, pathError(path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// pathError returns an error about the path of the item, also if err is about another name on the way.
func pathError(path string, err error) error {
	if _, ok := errors.AsType[*Refusal](err); ok {
		return err
	}
	if inner, ok := errors.AsType[*fs.PathError](err); ok {
		err = inner.Err
	}
	return &fs.PathError{Op: "open", Path: path, Err: err}
}

// maxLinks is how many symbolic links a path may have; the kernel has the same number.
const maxLinks = 40

// walk is the state of following one path.
type walk struct {
	uid   uint32 // of the process
	links int    // followed so far
}

// follow walks a path from a folder (nil: the working directory), and opens its target by O_PATH. With folder, the
// target must be a folder.
func (w *walk) follow(from *os.File, path string, folder bool) (*os.File, error) {
	rest, absolute := strings.CutPrefix(path, "/")
	if absolute {
		root, err := openAt(nil, "/", true)
		if err != nil {
			return nil, err
		}
		defer root.Close()
		from = root
	} else if path == "" {
		return nil, unix.ENOENT
	}
	at := from
	for more := true; more; {
		var name string
		name, rest, more = strings.Cut(rest, "/")
		below, err := w.step(at, cmp.Or(name, "."), folder || more)
		if at != from {
			at.Close()
		}
		if err != nil {
			return nil, err
		}
		at = below
	}
	return at, nil
}

// step opens the file with a name in a folder, or the target if it is a link.
func (w *walk) step(at *os.File, name string, folder bool) (*os.File, error) {
	f, err := openAt(at, name, folder)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Mode()&fs.ModeSymlink == 0 {
		return f, nil
	}
	defer f.Close()
	if err != nil {
		return nil, err
	}
	if w.links++; w.links > maxLinks {
		return nil, unix.ELOOP
	}
	text, err := readLink(f)
	if err != nil {
		return nil, err
	}
	target, err := w.follow(at, text, folder)
	owner := ownerOf(info)
	if owner == 0 || owner == w.uid {
		return target, err
	}
	if err != nil {
		if tellsOfTarget(err) {
			err = foreignLink(f.Name(), owner)
		}
		return nil, err
	}
	if info, err = target.Stat(); err == nil && ownerOf(info) == owner {
		return target, nil
	}
	target.Close()
	return nil, cmp.Or[error](err, foreignLink(f.Name(), owner))
}

// tellsOfTarget reports whether an error is about the target of a link. The owner of the link must not learn
// this, so the failure is the same as for a file of another user.
func tellsOfTarget(err error) bool {
	_, refused := errors.AsType[*Refusal](err)
	return refused || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENOTDIR) ||
		errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENAMETOOLONG)
}

// foreignLink refuses a link. The text does not depend on the target of the link.
func foreignLink(path string, owner uint32) *Refusal {
	name := fmt.Sprintf("uid %d", owner)
	if u, err := user.LookupId(strconv.FormatUint(uint64(owner), 10)); err == nil {
		name = fmt.Sprintf("%s (uid %d)", u.Username, owner)
	}
	return &Refusal{"foreign_link", fmt.Sprintf("the link %.200q belongs to %s and leads to nothing of the same owner, "+
		"so it is not followed; put the file itself there, or make the link belong to root or to the user of ledgerd "+
		"(chown -h)", path, name)}
}

func ownerOf(info fs.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }

// openAt opens the file with a name in a folder by O_PATH: it cannot be read, and a link is not followed.
func openAt(at *os.File, name string, folder bool) (*os.File, error) {
	dir, path := unix.AT_FDCWD, name
	if at != nil {
		dir, path = int(at.Fd()), filepath.Join(at.Name(), name)
	}
	const look = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := -1, error(unix.ENOTDIR)
	if folder { // O_DIRECTORY makes an automounter mount the folder
		fd, err = patiently(func() (int, error) { return unix.Openat(dir, name, look|unix.O_DIRECTORY, 0) })
	}
	if err == unix.ENOTDIR { // it may be a link
		fd, err = patiently(func() (int, error) { return unix.Openat(dir, name, look, 0) })
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

func readLink(f *os.File) (string, error) {
	text := make([]byte, unix.PathMax)
	n, err := patiently(func() (int, error) { return unix.Readlinkat(int(f.Fd()), "", text) })
	if err == nil && n == len(text) {
		err = unix.ENAMETOOLONG
	}
	return string(text[:max(n, 0)]), err
}

// patiently repeats a system call while a signal interrupts it.
func patiently(call func() (int, error)) (n int, err error) {
	for err = unix.EINTR; err == unix.EINTR; {
		n, err = call()
	}
	return n, err
}
