// Package pluginstore keeps the programs of plugins that were added to a machine, one for each name, each under the
// SHA-256 of its content.
//
// A store is a folder, plugins/ of the data directory:
//
//	ledgerd-plugin-thumbs → thumbs/3fa9…/ledgerd-plugin-thumbs    the plugin
//	thumbs/3fa9…/ledgerd-plugin-thumbs                            its program, read-only
//	.lock                                                         locked by the process that changes the store
//
// The link is the only state, and it is replaced as a whole. So a reader sees the old program or the new one, and a
// change whose process is killed is done or not begun; the next change removes its leftovers. A replaced program stays
// until the next one is replaced, because processes may still run from it.
// The name of a program's folder is the checksum that the program must have at each start. All users can read the
// store, and the user who added the plugins can write it; the data directory around it may keep others out.
// The store ignores programs that a person puts beside the links.
package pluginstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/internal/lazyregexp"
)

// Prefix of the programs of plugins.
const Prefix = "ledgerd-plugin-"

// MaxProgram is the most bytes that a program may have.
const MaxProgram = 1 << 30

// Errors of changes; wrapped.
var (
	ErrTooLarge = fmt.Errorf("a program may have %d bytes", MaxProgram)
	ErrNoFile   = errors.New("is a folder, pipe or device, not the file of a program")
	ErrTaken    = errors.New("a program that was put there by hand has this name")
)

// Added is a plugin in a store.
type Added struct {
	Name   string
	SHA256 string // of the program, in hex
	Path   string // of the program
}

// Store is the folder of a store. It need not exist.
type Store struct{ Dir string }

var hashForm = lazyregexp.New(`^[0-9a-f]{64}$`)

// Read returns the target of a link in a folder of plugins; ok is false for all that is no link of
// a store: a program, or a link that a person has made.
func Read(link string) (a Added, ok bool) {
	target, err := os.Readlink(link)
	if err != nil {
		return a, false
	}
	name := strings.TrimPrefix(filepath.Base(link), Prefix)
	parts := strings.Split(target, "/")
	if len(parts) != 3 || parts[0] != name || !hashForm().MatchString(parts[1]) || parts[2] != Prefix+name {
		return a, false
	}
	return Added{Name: name, SHA256: parts[1], Path: filepath.Join(filepath.Dir(link), target)}, true
}

// Read returns the plugin that was added under a name.
func (s Store) Read(name string) (a Added, ok bool) { return Read(s.link(name)) }

const (
	lockName = ".lock"
	newName  = ".new" // the folder of files that are not in their place yet
)

// Has reports whether a plugin was added under a name, even if its link is gone or was replaced.
func (s Store) Has(name string) bool {
	entries, _ := os.ReadDir(filepath.Join(s.Dir, name)) // none if it is no folder
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return hashForm().MatchString(e.Name()) })
}

func (s Store) link(name string) string { return filepath.Join(s.Dir, Prefix+name) }

// Change is the right to change a store. One program has it at a time.
type Change struct {
	store Store
	lock  *os.File
}

// lockEvery is the time between two tries to get the lock that another process has.
const lockEvery = 100 * time.Millisecond

// Begin waits until no other process changes the store, and makes the store if it does not exist. It calls waits once
// if it has to wait. It removes leftovers of a killed change. If ctx ends first, it returns the cause.
func (s Store) Begin(ctx context.Context, waits func()) (*Change, error) {
	if err := os.MkdirAll(filepath.Dir(s.Dir), 0o700); err != nil {
		return nil, err
	}
	if err := makeDir(s.Dir); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(s.Dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err = try(lock); errors.Is(err, errLocked) {
		waits()
	}
	for errors.Is(err, errLocked) {
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), lock.Close())
		case <-time.After(lockEvery):
			err = try(lock)
		}
	}
	if err == nil {
		err = os.RemoveAll(filepath.Join(s.Dir, newName))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", lock.Name(), err), lock.Close())
	}
	return &Change{s, lock}, nil
}

// End lets others change the store.
func (c *Change) End() error {
	return errors.Join(os.RemoveAll(filepath.Join(c.store.Dir, newName)), c.lock.Close())
}

// Copy copies a program into the store, for Use. It returns the path of the copy and its SHA-256 in hex.
func (c *Change) Copy(file string) (path, sum string, err error) {
	from, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a named pipe is not waited for
	if err != nil {
		return "", "", err
	}
	defer from.Close()
	if info, err := from.Stat(); err != nil {
		return "", "", err
	} else if !info.Mode().IsRegular() {
		return "", "", fmt.Errorf("%s: %w", file, ErrNoFile)
	}
	path, sum, err = c.Save(from)
	if err != nil {
		err = fmt.Errorf("%s: %w", file, err)
	}
	return path, sum, err
}

// Save is Copy for a program that is read from a reader.
func (c *Change) Save(from io.Reader) (path, sum string, err error) {
	dir := filepath.Join(c.store.Dir, newName)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", err
	}
	path = filepath.Join(dir, "program")
	to, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o555)
	if err != nil {
		return "", "", err
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(to, h), io.LimitReader(from, MaxProgram+1))
	if err == nil && n > MaxProgram {
		err = ErrTooLarge
	}
	if err == nil {
		err = to.Chmod(0o555) // whatever the umask
	}
	if err == nil {
		err = to.Sync()
	}
	return path, hex.EncodeToString(h.Sum(nil)), errors.Join(err, to.Close())
}

// Use makes the program that Copy has copied the program of a plugin. now is the plugin, with its path; before is the
// plugin that it replaces, empty if there was none.
func (c *Change) Use(copied string, a Added) (now, before Added, err error) {
	s := c.store
	if info, err := os.Lstat(s.link(a.Name)); err == nil && info.Mode()&fs.ModeSymlink == 0 {
		return a, before, fmt.Errorf("%s: %w", s.link(a.Name), ErrTaken)
	}
	before, _ = Read(s.link(a.Name))
	target := filepath.Join(a.Name, a.SHA256, Prefix+a.Name)
	a.Path = filepath.Join(s.Dir, target)
	dir := filepath.Dir(a.Path)
	link := filepath.Join(s.Dir, newName, "link")
	for _, step := range []func() error{
		func() error { return makeDir(filepath.Dir(dir)) },
		func() error { return makeDir(dir) },
		func() error { return os.Rename(copied, a.Path) },
		func() error { return errors.Join(syncDir(dir), syncDir(filepath.Dir(dir)), syncDir(s.Dir)) },
		func() error { return os.Symlink(target, link) },
		func() error { return os.Rename(link, s.link(a.Name)) },
		func() error { return syncDir(s.Dir) },
	} {
		if err := step(); err != nil {
			return a, before, err
		}
	}
	if before.SHA256 != a.SHA256 { // the same program replaces none
		_ = removeBut(filepath.Dir(dir), a.SHA256, before.SHA256) // after an error the next change removes them
	}
	return a, before, nil
}

// removeBut removes all entries of a folder except those with one of the names.
func removeBut(dir string, names ...string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if !slices.Contains(names, e.Name()) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// Remove removes the plugin of a name. If a file of another origin stands in place of its link, this file stays.
func (c *Change) Remove(name string) error {
	if _, ok := Read(c.store.link(name)); ok {
		if err := os.Remove(c.store.link(name)); err != nil {
			return err
		}
	}
	return errors.Join(syncDir(c.store.Dir), os.RemoveAll(filepath.Join(c.store.Dir, name)))
}

// makeDir makes a folder that all users can read, whatever the umask: the user who adds plugins, often root,
// need not be the user who works with them. It leaves an existing folder as it is.
func makeDir(path string) error {
	err := os.Mkdir(path, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Chmod(path, 0o755)
}

// syncDir makes the entries of a folder survive a loss of power.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
