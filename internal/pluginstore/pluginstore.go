// Package pluginstore keeps the programs of plugins that were added to a machine: each under the
// SHA-256 of its content, several versions of a name side by side, one of them current.
//
// A store is a folder, plugins/ of the data directory:
//
//	ledgerd-plugin-thumbs → thumbs/3fa9…/ledgerd-plugin-thumbs    what is current
//	thumbs/3fa9…/ledgerd-plugin-thumbs                            a version, read-only
//	thumbs/3fa9…/added.json                                       where it is from
//	thumbs/81c0…/ledgerd-plugin-thumbs                            another version
//	.lock                                                         held by whoever changes something
//
// The link alone names the current version, and it is replaced as a whole. So a reader sees the old version or the
// new one, and a change that is killed has happened or has not. The next change overwrites what it leaves besides.
// The name of a version's folder is the checksum that the program must have, every time that it is started. All of it
// is readable for everyone, and writable for the user who added it; the data directory around it may keep others out.
// The name of a program is the plugin's name for itself; it may be added under another one. The store ignores
// programs that a person puts beside the links.
package pluginstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Prefix of the programs of plugins.
const Prefix = "ledgerd-plugin-"

// MaxProgram is the most bytes that a program may have.
const MaxProgram = 1 << 30

// Errors of changes; wrapped.
var (
	ErrBusy     = errors.New("somebody else changes the plugins of this machine")
	ErrTooLarge = fmt.Errorf("a program may have %d bytes", MaxProgram)
	ErrNoFile   = errors.New("is a folder, pipe or device, not the file of a program")
	ErrTaken    = errors.New("a program that was put there by hand has this name")
	ErrCurrent  = errors.New("it is current")
	ErrNone     = errors.New("nothing of that name was added")
)

// Version is one version of a plugin in a store.
type Version struct {
	Name    string // that it goes by here
	Calls   string // its own name
	SHA256  string // of the program, in hex
	Path    string // of the program
	Current bool
	Origin
}

// Origin is what is noted of a version when it is added.
type Origin struct {
	Version string    `json:"version"`
	From    string    `json:"from"` // path of the file that was copied
	AddedAt time.Time `json:"added_at"`
}

// Store is the folder of a store, which need not exist.
type Store struct{ Dir string }

var hashForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Read returns the target of a link in a folder of plugins; ok is false for all that is no link of
// a store: a program, or a link that a person has made.
func Read(link string) (v Version, ok bool) {
	target, err := os.Readlink(link)
	if err != nil {
		return v, false
	}
	dir, name := filepath.Dir(link), strings.TrimPrefix(filepath.Base(link), Prefix)
	parts := strings.Split(target, "/")
	if len(parts) != 3 || parts[0] != name || !hashForm.MatchString(parts[1]) || !strings.HasPrefix(parts[2], Prefix) {
		return v, false
	}
	v = Store{dir}.version(name, parts[1], strings.TrimPrefix(parts[2], Prefix))
	v.Current = true
	return v, true
}

// version reads the note of a version; a missing or damaged note gives nothing.
func (s Store) version(name, sum, calls string) Version {
	v := Version{Name: name, Calls: calls, SHA256: sum, Path: filepath.Join(s.Dir, name, sum, Prefix+calls)}
	if text, err := os.ReadFile(filepath.Join(s.Dir, name, sum, noteName)); err == nil {
		_ = json.Unmarshal(text, &v.Origin)
	}
	return v
}

const (
	noteName = "added.json"
	lockName = ".lock"
	newName  = ".new" // a file that is not in its place yet
)

// Versions returns the versions of a name, the newest first.
func (s Store) Versions(name string) ([]Version, error) {
	programs, err := filepath.Glob(filepath.Join(quoteGlob(s.Dir), quoteGlob(name), "*", Prefix+"*"))
	if err != nil {
		return nil, err
	}
	current, _ := Read(s.link(name))
	var all []Version
	for _, path := range programs {
		sum := filepath.Base(filepath.Dir(path))
		if !hashForm.MatchString(sum) {
			continue
		}
		v := s.version(name, sum, strings.TrimPrefix(filepath.Base(path), Prefix))
		v.Current = v.SHA256 == current.SHA256
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b Version) int {
		return cmp.Or(b.AddedAt.Compare(a.AddedAt), strings.Compare(a.SHA256, b.SHA256))
	})
	return all, nil
}

// Names returns the names of the added plugins, sorted.
func (s Store) Names() (names []string, err error) {
	entries, err := os.ReadDir(s.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if versions, _ := s.Versions(e.Name()); e.IsDir() && len(versions) > 0 {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// quoteGlob makes a path stand for itself in a pattern.
func quoteGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

func (s Store) link(name string) string { return filepath.Join(s.Dir, Prefix+name) }

// Change is the right to change a store, which one program has at a time.
type Change struct {
	store Store
	lock  *os.File
}

// Begin waits until no other process changes the store, and makes it if it does not exist.
// Leftovers of a killed change are removed. The error wraps ErrBusy if ctx ends before.
func (s Store) Begin(ctx context.Context) (*Change, error) {
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
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return &Change{s, lock}, os.RemoveAll(filepath.Join(s.Dir, newName))
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", lock.Name(), err), lock.Close())
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("%s: %w", s.Dir, ErrBusy), lock.Close())
		}
	}
}

// End lets others change the store.
func (c *Change) End() error {
	return errors.Join(os.RemoveAll(filepath.Join(c.store.Dir, newName)), c.lock.Close())
}

// Copy copies a program into the store, where it is not found yet. It returns the copied content,
// whatever becomes of the file.
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
	dir := filepath.Join(c.store.Dir, newName)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", err
	}
	path = filepath.Join(dir, "program")
	h := sha256.New()
	err = write(path, 0o555, func(to io.Writer) error {
		n, err := io.Copy(io.MultiWriter(to, h), io.LimitReader(from, MaxProgram+1))
		if err == nil && n > MaxProgram {
			err = fmt.Errorf("%s: %w", file, ErrTooLarge)
		}
		return err
	})
	return path, hex.EncodeToString(h.Sum(nil)), err
}

// Use makes what Copy has copied a version of a name, and that version current.
func (c *Change) Use(copied string, v Version) (Version, error) {
	s := c.store
	if info, err := os.Lstat(s.link(v.Name)); err == nil && info.Mode()&fs.ModeSymlink == 0 {
		return v, fmt.Errorf("%s: %w", s.link(v.Name), ErrTaken)
	}
	dir := filepath.Join(s.Dir, v.Name, v.SHA256)
	v.Path, v.Current = filepath.Join(dir, Prefix+v.Calls), true
	if err := errors.Join(makeDir(filepath.Dir(dir)), makeDir(dir)); err != nil {
		return v, err
	}
	note, err := json.Marshal(v.Origin)
	if err != nil {
		return v, err
	}
	part := filepath.Join(s.Dir, newName, noteName)
	err = write(part, 0o444, func(to io.Writer) error { _, err := to.Write(note); return err })
	if err == nil {
		err = os.Rename(part, filepath.Join(dir, noteName))
	}
	if err == nil {
		err = os.Rename(copied, v.Path)
	}
	if err == nil {
		err = errors.Join(syncDir(dir), syncDir(filepath.Dir(dir)), syncDir(s.Dir))
	}
	if err != nil {
		return v, err
	}
	link := filepath.Join(s.Dir, newName, "link")
	if err := os.Symlink(filepath.Join(v.Name, v.SHA256, Prefix+v.Calls), link); err != nil {
		return v, err
	}
	if err := os.Rename(link, s.link(v.Name)); err != nil {
		return v, err
	}
	return v, syncDir(s.Dir)
}

// Remove removes all versions of a name.
func (c *Change) Remove(name string) error {
	if _, ok := Read(c.store.link(name)); ok {
		if err := os.Remove(c.store.link(name)); err != nil {
			return err
		}
	} else if versions, err := c.store.Versions(name); err != nil || len(versions) == 0 {
		return cmp.Or(err, fmt.Errorf("plugin %q: %w", name, ErrNone))
	}
	return errors.Join(syncDir(c.store.Dir), os.RemoveAll(filepath.Join(c.store.Dir, name)))
}

// RemoveVersion removes a version that is not current.
func (c *Change) RemoveVersion(v Version) error {
	if now, ok := Read(c.store.link(v.Name)); ok && now.SHA256 == v.SHA256 {
		return fmt.Errorf("plugin %q, sha256 %s: %w", v.Name, v.SHA256, ErrCurrent)
	}
	return os.RemoveAll(filepath.Join(c.store.Dir, v.Name, v.SHA256))
}

// write writes a new file that survives a loss of power.
func write(path string, mode fs.FileMode, fill func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	err = fill(f)
	if err == nil {
		err = f.Chmod(mode) // whatever the umask
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// makeDir makes a folder that all users can read, whatever the umask: the user who adds plugins, often root,
// need not be the user who works with them. One that is there is left as it is.
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

// syncDir makes names in a folder survive a loss of power.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
