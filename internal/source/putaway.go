package source

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/ledgerd/ledgerd/internal/inputs"
)

// asidePrefix begins the name of a file that is being put away. It is hidden, so no look takes it.
const asidePrefix = ".ledgerd-"

// putAway moves a file, or deletes it if to is "", unless it is another version by now; done says
// whether it did. A file that is at the place already keeps its name, the new one gets a number.
//
// The file is renamed within its folder first and looked at then: after that nobody can put another
// one under its name in between.
func putAway(path, version, to string) (done bool, err error) {
	if info, err := os.Lstat(path); err != nil || info.Mode().IsRegular() && inputs.Version(info) != version {
		return false, ignoreMissing(err)
	}
	aside := filepath.Join(filepath.Dir(path), asideName(filepath.Base(path)))
	if _, err := os.Lstat(aside); err == nil {
		return false, fmt.Errorf("%s is in the way", aside)
	}
	if err := os.Rename(path, aside); err != nil {
		return false, ignoreMissing(err)
	}
	info, err := os.Stat(aside)
	if err != nil || inputs.Version(info) != version {
		return false, errors.Join(err, putBack(aside, path))
	}
	if to == "" {
		err = os.Remove(aside)
	} else {
		err = move(aside, to)
	}
	if err != nil {
		return false, errors.Join(err, putBack(aside, path))
	}
	return true, nil
}

// longestName is how many bytes a file's name may have.
const longestName = 255

// asideName is the hidden name of a file, shortened if it were too long.
func asideName(name string) string {
	return asidePrefix + strings.ToValidUTF8(name[:min(len(name), longestName-len(asidePrefix))], "")
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) { // somebody else took it away
		return nil
	}
	return err
}

// putBack gives a file its name again, unless there is a new one of that name.
func putBack(aside, path string) error {
	err := os.Link(aside, path)
	if err == nil {
		return os.Remove(aside)
	}
	if _, there := os.Lstat(path); errors.Is(there, fs.ErrNotExist) { // a file system without links
		err = os.Rename(aside, path)
	}
	if err != nil {
		return fmt.Errorf("%s stays as %s: %w", path, aside, err)
	}
	return nil
}

// mostNames bounds how many names are tried for a file that is moved.
const mostNames = 1000

// move gives a file a place, on another file system as well, without overwriting one that is there.
func move(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	name := to
	for i := 1; i <= mostNames; i++ {
		err := os.Link(from, name) // fails if there is one, as rename does not
		switch {
		case err == nil:
			return os.Remove(from)
		case errors.Is(err, fs.ErrExist):
			name = fmt.Sprintf("%s.%d", to, i)
		case errors.Is(err, syscall.EXDEV), errors.Is(err, syscall.EPERM), errors.Is(err, syscall.ENOTSUP):
			if err = carry(from, name); !errors.Is(err, fs.ErrExist) {
				return err
			}
			name = fmt.Sprintf("%s.%d", to, i)
		default:
			return err
		}
	}
	return fmt.Errorf("%s and %d other names are taken", to, mostNames)
}

// carry copies a file to a new place, with its time of change, and removes it once the copy is safe.
func carry(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err == nil {
		err = os.Chtimes(to, info.ModTime(), info.ModTime())
	}
	if err != nil {
		return errors.Join(err, os.Remove(to))
	}
	return os.Remove(from)
}
