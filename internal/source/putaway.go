package source

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/ledgerd/ledgerd/internal/intake"
)

// asidePrefix begins the name of a file that is being put away. It is hidden, so no look takes it.
const asidePrefix = ".ledgerd-"

// putter moves or deletes finished files of a folder. Other users may be able to change the folder at any moment. So a
// file is reached from the folder downwards, one open folder after the other, and no link is followed.
type putter struct {
	from string // the folder
	to   string // where files are moved to; "" to delete them
}

// errLink is the error for a file that is not put away, because a link has replaced it or a folder of its path.
var errLink = errors.New("is a link, and no longer the file that was worked")

// putAway moves or deletes the file with this path below the folder; done reports whether it did. It does nothing if
// the file is gone or has another version now. If the target folder has a file with the same name, the moved file gets
// a number.
//
// The file is first renamed within its folder and checked after that, because a program may replace it under its old
// name between a check and the removal.
func (p putter) putAway(ctx context.Context, rel, version string) (done bool, err error) {
	dir, err := openBelow(p.from, filepath.Dir(rel))
	if err != nil {
		return false, ignoreMissing(err)
	}
	defer dir.Close()
	name := filepath.Base(rel)
	if info, err := dir.Lstat(name); err != nil || info.Mode().IsRegular() && intake.Version(info) != version {
		return false, ignoreMissing(err)
	} else if !info.Mode().IsRegular() {
		return false, fmt.Errorf("%s: %w", filepath.Join(p.from, rel), errLink)
	}
	aside := asideName(name)
	if _, err := dir.Lstat(aside); err == nil {
		return false, fmt.Errorf("%s is in the way", filepath.Join(dir.Name(), aside))
	}
	if err := dir.Rename(name, aside); err != nil {
		return false, ignoreMissing(err)
	}
	info, err := dir.Lstat(aside)
	if err != nil || !info.Mode().IsRegular() || intake.Version(info) != version {
		return false, errors.Join(err, putBack(dir, aside, name))
	}
	if p.to == "" {
		err = dir.Remove(aside)
	} else {
		err = p.move(ctx, dir, aside, info, rel)
	}
	if err != nil {
		return false, errors.Join(err, putBack(dir, aside, name))
	}
	return true, nil
}

// openBelow opens a folder below another one. Links on the path are errors.
func openBelow(folder, rel string) (*os.Root, error) {
	at, err := os.OpenRoot(folder)
	if err != nil || rel == "." {
		return at, err
	}
	for name := range strings.SplitSeq(rel, string(filepath.Separator)) {
		below, err := enter(at, name)
		if err = errors.Join(err, at.Close()); err != nil {
			if below != nil {
				below.Close()
			}
			return nil, err
		}
		at = below
	}
	return at, nil
}

// enter opens a folder in a folder. It refuses a link.
func enter(at *os.Root, name string) (*os.Root, error) {
	info, err := at.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s: %w", filepath.Join(at.Name(), name), errLink)
	}
	below, err := at.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	if opened, err := below.Stat("."); err != nil || !os.SameFile(info, opened) {
		below.Close()
		return nil, errors.Join(err, fmt.Errorf("%s: %w", filepath.Join(at.Name(), name), errLink))
	}
	return below, nil
}

// longestName is the most bytes of a file's name.
const longestName = 255

// asideName is the hidden name of a file, cut to longestName bytes.
func asideName(name string) string {
	return asidePrefix + strings.ToValidUTF8(name[:min(len(name), longestName-len(asidePrefix))], "")
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) { // another process has removed the file
		return nil
	}
	return err
}

// putBack gives a file its old name again. If there is a new file with this name, the file keeps its hidden name, and
// this is an error.
func putBack(dir *os.Root, aside, name string) error {
	if err := rename(dir, aside, dir, name); err != nil {
		return fmt.Errorf("%s stays as %s: %w", filepath.Join(dir.Name(), name), aside, err)
	}
	return nil
}

// restore gives a file with a hidden name its old name again, because the process that put it away has ended. For a
// file without such a name ok is false. A long name was cut, so its old name is not known: this is an error.
func (p putter) restore(path string) (ok bool, err error) {
	aside := filepath.Base(path)
	name, ok := strings.CutPrefix(aside, asidePrefix)
	rel, err := filepath.Rel(p.from, path)
	if !ok || name == "" || err != nil {
		return false, err
	}
	if len(aside) > longestName-utf8.UTFMax {
		return true, errors.New("keeps its hidden name: its own was too long to be known")
	}
	dir, err := openBelow(p.from, filepath.Dir(rel))
	if err != nil {
		return true, err
	}
	defer dir.Close()
	if info, err := dir.Lstat(aside); err != nil || !info.Mode().IsRegular() {
		return false, ignoreMissing(err)
	}
	return true, putBack(dir, aside, name)
}

// rename moves a file and overwrites none. If the file system has no atomic call for that, rename checks for a file and
// then moves, but only within a folder.
func rename(from *os.Root, old string, to *os.Root, name string) error {
	err := move(from, old, to, name)
	if err == nil || from != to || errors.Is(err, fs.ErrExist) {
		return err
	}
	switch _, there := to.Lstat(name); {
	case there == nil:
		return fmt.Errorf("%s: %w", filepath.Join(to.Name(), name), fs.ErrExist)
	case errors.Is(there, fs.ErrNotExist):
		return to.Rename(old, name)
	}
	return err
}

// maxNames is how many names are tried for a file that is moved.
const maxNames = 1000

// renameFree moves a file and gives it a number if there is a file with its name.
func renameFree(from *os.Root, old string, to *os.Root, base string) error {
	name := base
	for i := 1; i <= maxNames; i++ {
		if err := rename(from, old, to, name); !errors.Is(err, fs.ErrExist) {
			return err
		}
		name = fmt.Sprintf("%s.%d", base, i)
	}
	return fmt.Errorf("%s and %d other names are taken", filepath.Join(to.Name(), base), maxNames)
}

// move moves a file, also to another file system, and never overwrites a file.
func (p putter) move(ctx context.Context, dir *os.Root, aside string, info fs.FileInfo, rel string) error {
	if err := os.MkdirAll(p.to, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(p.to)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.MkdirAll(filepath.Dir(rel), 0o755); err != nil {
		return err
	}
	to, err := root.OpenRoot(filepath.Dir(rel))
	if err != nil {
		return err
	}
	defer to.Close()
	err = renameFree(dir, aside, to, filepath.Base(rel))
	for _, cannot := range []error{syscall.EXDEV, syscall.EPERM, syscall.ENOTSUP, syscall.ENOSYS, syscall.EMLINK} {
		if errors.Is(err, cannot) {
			return moveByCopy(ctx, dir, aside, info, to, filepath.Base(rel))
		}
	}
	return err
}

// copyPrefix begins the name of a copy until it is complete. After a crash a part may be left. It is hidden, so no look
// takes it, and restore does not touch it.
const copyPrefix = ".ledgerd.copy-"

// moveByCopy copies a file to a new place, with its modification time, mode and, if it may, owner. It removes the file
// when the copy is on the disk.
func moveByCopy(ctx context.Context, from *os.Root, old string, info fs.FileInfo, to *os.Root, name string) error {
	in, err := from.OpenFile(old, os.O_RDONLY|intake.NoFollow|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	if opened, err := in.Stat(); err != nil || !os.SameFile(info, opened) {
		return errors.Join(err, fmt.Errorf("%s: %w", filepath.Join(from.Name(), old), errLink))
	}
	part := copyPrefix + rand.Text()
	out, err := to.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err = copyUntil(ctx, out, in); err == nil {
		chown(out, info)
		err = errors.Join(out.Chmod(info.Mode().Perm()), out.Sync())
	}
	if err = errors.Join(err, out.Close()); err == nil {
		err = to.Chtimes(part, info.ModTime(), info.ModTime())
	}
	if err == nil {
		var now fs.FileInfo
		if now, err = from.Lstat(old); err == nil && intake.Version(now) != intake.Version(info) {
			err = fmt.Errorf("%s was changed while it was moved", filepath.Join(from.Name(), old))
		}
	}
	if err == nil {
		err = renameFree(to, part, to, name)
	}
	if err != nil {
		return errors.Join(err, to.Remove(part))
	}
	if err := syncFolder(to); err != nil { // before that, a power failure could remove the new name
		return err
	}
	return from.Remove(old)
}

// syncFolder writes the names in a folder to the disk.
func syncFolder(r *os.Root) error {
	d, err := r.Open(".")
	if err != nil {
		return err
	}
	defer d.Close()
	err = d.Sync()
	if runtime.GOOS == "windows" || errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil // a folder cannot be synced there
	}
	return err
}

// copyUntil copies a file, and ends with ctx: a process that is stopped does not wait for gigabytes.
func copyUntil(ctx context.Context, out, in *os.File) error {
	const piece = 4 << 20
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := io.CopyN(out, in, piece); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
