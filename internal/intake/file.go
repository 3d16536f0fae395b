package intake

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
	"strings"
	"syscall"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/ledgerd/ledgerd/ledger"
)

const (
	// A file that was changed less than youngAge ago may still be being written. It is checked again after settleTime,
	// and left out if it has changed.
	youngAge   = 2 * time.Second
	settleTime = time.Second
	// maxYoung is how many such files wait for the second check.
	maxYoung = 10_000
)

// isFile reports whether a regular file with this name exists.
func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// isGlob reports whether text that names no file is a pattern.
func isGlob(text string) bool {
	return strings.ContainsAny(text, "*?[{") && doublestar.ValidatePathPattern(text)
}

// checkFile returns an error if a named file, folder or glob cannot be used.
func checkFile(name string) error {
	_, err := statNamed(name)
	if errors.Is(err, fs.ErrNotExist) && isGlob(name) {
		base, _ := doublestar.SplitPattern(filepath.ToSlash(name))
		if _, err := os.Stat(base); err != nil {
			return unusable(base, err)
		}
		return nil
	}
	return err
}

// statNamed returns the info of a named file or folder, following links. The error is an *ArgError.
func statNamed(name string) (fs.FileInfo, error) {
	if name == "" {
		return nil, &ArgError{Input: `""`, Reason: "is blank"}
	}
	info, err := os.Stat(name)
	switch {
	case err != nil:
		e := unusable(name, err)
		if link, lerr := os.Lstat(name); lerr == nil && isLink(link) && errors.Is(err, fs.ErrNotExist) {
			e.Reason = "is a link to something that does not exist"
		}
		return nil, e
	case !info.IsDir() && !info.Mode().IsRegular():
		return nil, &ArgError{Input: name, Reason: "is neither a file nor a folder",
			Hint: "a pipe cannot be worked again; write it into a file"}
	}
	return info, nil
}

// isLink reports whether info is that of a link; it must come from Lstat.
func isLink(info fs.FileInfo) bool { return info.Mode()&fs.ModeSymlink != 0 }

// fileIdentity returns the key and the version of a file.
func (s *Source) fileIdentity(name string) (key, fingerprint string, info fs.FileInfo, err error) {
	if info, err = statNamed(name); err != nil {
		return "", "", nil, err
	}
	if info.IsDir() {
		return "", "", nil, &ArgError{Input: name, Reason: "is a folder, not a file"}
	}
	if key, err = filepath.Abs(name); err == nil {
		fingerprint, err = s.fingerprint(info, func() (*os.File, error) { return os.Open(name) })
	}
	if err != nil {
		return "", "", nil, unusable(name, err)
	}
	return key, fingerprint, info, nil
}

// Version returns the fingerprint of a file without reading its content.
func Version(info fs.FileInfo) string {
	return fmt.Sprintf("%d-%d", info.Size(), info.ModTime().UnixNano())
}

// fingerprint returns the Version of a file, or with Checksum its SHA-256; open is called only for that.
func (s *Source) fingerprint(info fs.FileInfo, open func() (*os.File, error)) (string, error) {
	if !s.Checksum {
		return Version(info), nil
	}
	f, err := open()
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

// file handles a file, a folder or a glob.
func (r *reader) file(name string, o origin) bool {
	info, err := os.Stat(name)
	w := &walk{reader: r, origin: o, seen: map[inode]bool{}}
	if isGlob(name) {
		w.root, _ = doublestar.SplitPattern(filepath.ToSlash(name))
	}
	switch {
	case err == nil && info.IsDir():
		w.root = name
		return w.within(func() bool { return w.folder(name, ".", info) && w.finish() })
	case errors.Is(err, fs.ErrNotExist) && isGlob(name):
		return w.within(func() bool { return w.glob(name) && w.finish() })
	}
	n, err := r.item(name)
	if err != nil {
		return r.bad(o, err)
	}
	return r.found(name, n, o)
}

// inode identifies a folder, whatever path leads to it.
type inode struct{ device, number uint64 }

// walk goes through one named folder or glob. Its methods return false when the whole reading must stop.
type walk struct {
	*reader
	origin origin
	root   string
	in     *os.Root       // root, opened, if links must not lead out of it; else nil
	seen   map[inode]bool // folders, so that circles of links end
	links  []entry        // links to folders; they are walked after the folders
	young  []entry
	looked time.Time // when the newest of young was found
}

// entry is a file or folder as it was read.
type entry struct {
	path, rel string
	info      fs.FileInfo // following links
}

// within opens the root and calls do. Unless links are followed, do reaches everything below through the root: so a
// folder that is replaced by a link meanwhile cannot lead out.
func (w *walk) within(do func() bool) bool {
	if w.FollowLinks {
		return do()
	}
	in, err := os.OpenRoot(w.root)
	if err != nil {
		return w.bad(w.origin, unusable(w.root, err))
	}
	defer in.Close()
	w.in = in
	return do()
}

// lstat returns the info of a file below the root; with in nil, by its path.
func (w *walk) lstat(path, rel string) (fs.FileInfo, error) {
	if w.in == nil {
		return os.Lstat(path)
	}
	return w.in.Lstat(rel)
}

// stat returns the info of a file below the root. It follows a link only if links are followed.
func (w *walk) stat(path, rel string) (fs.FileInfo, error) {
	if w.in == nil {
		return os.Stat(path)
	}
	return w.in.Lstat(rel)
}

// files returns the file system below the root.
func (w *walk) files() fs.FS {
	if w.in == nil {
		return os.DirFS(w.root)
	}
	return w.in.FS()
}

// open opens a file below the root. Unless links are followed, it does not follow a link at the end of the path, and
// does not wait for a pipe.
func (w *walk) open(path, rel string) (*os.File, error) {
	if w.in == nil {
		return os.Open(path)
	}
	return w.in.OpenFile(rel, os.O_RDONLY|NoFollow|syscall.O_NONBLOCK, 0)
}

// leave leaves a file out because of a rule, or of its name, type or age.
func (w *walk) leave(path, reason string) bool {
	return w.yield(Found{}, &NotTaken{Input: path, Reason: reason})
}

// wrong leaves a file out because of an error. A file that no longer exists does not count as wrong.
func (w *walk) wrong(path string, err error) bool {
	return w.yield(Found{}, &NotTaken{Input: path, Reason: cause(err), Wrong: !errors.Is(err, fs.ErrNotExist)})
}

// errDangling is the error of a link that is followed but leads nowhere.
var errDangling = errors.New("a link to something that does not exist")

// notRegular is the reason for devices, pipes and sockets.
const notRegular = "not a regular file"

// folder handles the files in a folder and below it, in the order of names.
func (w *walk) folder(path, rel string, info fs.FileInfo) bool {
	if id, ok := identity(path, info); ok {
		if w.seen[id] {
			return true
		}
		w.seen[id] = true
	}
	entries, err := w.readDir(path, rel)
	if err != nil {
		if rel == "." {
			return w.bad(w.origin, unusable(path, err))
		}
		return w.wrong(path, err)
	}
	for _, d := range entries {
		if err := w.ctx.Err(); err != nil {
			return w.fatal(err)
		}
		if !w.child(filepath.Join(path, d.Name()), filepath.Join(rel, d.Name()), d) {
			return false
		}
	}
	return true
}

// readDir lists a folder, in the order of names.
func (w *walk) readDir(path, rel string) ([]fs.DirEntry, error) {
	if w.in == nil {
		return os.ReadDir(path)
	}
	return fs.ReadDir(w.in.FS(), filepath.ToSlash(rel))
}

// child handles one entry of a folder.
func (w *walk) child(path, rel string, d fs.DirEntry) bool {
	if reason := unfinished(d.Name()); reason != "" {
		return w.leave(path, reason)
	}
	slashed := filepath.ToSlash(rel)
	info, err := w.lstat(path, rel)
	link := d.Type()&fs.ModeSymlink != 0 || err == nil && isLink(info)
	if link {
		switch {
		case w.excluded(slashed):
			return w.leave(path, Excluded)
		case !w.FollowLinks:
			return w.leave(path, IsLink)
		}
		info, err = w.stat(path, rel)
	}
	switch {
	case err != nil && link && errors.Is(err, fs.ErrNotExist):
		return w.wrong(path, errDangling)
	case err != nil:
		return w.wrong(path, err)
	case info.IsDir() && w.Flat:
		return true
	case info.IsDir() && w.prunes(slashed):
		return w.leave(path, Excluded)
	case info.IsDir() && link:
		w.links = append(w.links, entry{path, rel, info})
		return true
	case info.IsDir():
		return w.folder(path, rel, info)
	case w.excluded(slashed):
		return w.leave(path, Excluded)
	case !w.takes(slashed):
		return w.leave(path, NoMatch)
	case !info.Mode().IsRegular():
		return w.leave(path, notRegular)
	}
	return w.takeOrWait(entry{path, rel, info})
}

// glob handles the files that a pattern matches; hidden ones only if the pattern names them.
func (w *walk) glob(pattern string) bool {
	base, rest := doublestar.SplitPattern(filepath.ToSlash(pattern))
	goOn, matched := true, false
	err := doublestar.GlobWalk(w.files(), rest, func(rel string, d fs.DirEntry) error {
		path := filepath.Join(base, filepath.FromSlash(rel))
		info, err := w.stat(path, filepath.FromSlash(rel))
		matched = matched || err != nil || !info.IsDir()
		switch reason := unfinished(filepath.Base(rel)); {
		case w.ctx.Err() != nil:
			goOn = w.fatal(w.ctx.Err())
		case reason != "" && reason != Hidden:
			goOn = w.leave(path, reason)
		case err != nil:
			goOn = w.wrong(path, err)
		case isLink(info):
			goOn = w.leave(path, IsLink)
		case info.IsDir(): // "a/**" matches the folder, too
		case !info.Mode().IsRegular():
			goOn = w.leave(path, notRegular)
		case w.excluded(rel):
			goOn = w.leave(path, Excluded)
		default:
			goOn = w.takeOrWait(entry{path, rel, info})
		}
		if !goOn {
			return fs.SkipAll
		}
		return nil
	}, globOptions...)
	switch {
	case err != nil && goOn:
		return w.bad(w.origin, unusable(pattern, err))
	case !matched && goOn && w.origin.file != "":
		return w.bad(w.origin, &ArgError{Input: pattern, Reason: MatchesNothing})
	case !matched && goOn:
		return w.yield(Found{}, &NotTaken{Input: pattern, Reason: MatchesNothing, Wrong: true})
	}
	return goOn
}

// globOptions: hidden files match only if the pattern names them. ** does not follow links, since they may lead in
// circles.
var globOptions = []doublestar.GlobOption{doublestar.WithNoHidden(), doublestar.WithNoFollow()}

// matchesFile reports whether a pattern matches at least one file that is no folder.
func matchesFile(pattern string) (bool, error) {
	base, rest := doublestar.SplitPattern(filepath.ToSlash(pattern))
	found := false
	err := doublestar.GlobWalk(os.DirFS(base), rest, func(rel string, _ fs.DirEntry) error {
		info, err := os.Stat(filepath.Join(base, filepath.FromSlash(rel)))
		if found = err != nil || !info.IsDir(); found {
			return fs.SkipAll
		}
		return nil
	}, globOptions...)
	if found {
		return true, nil // the error that ended the search at the first match
	}
	return false, err
}

// excluded reports whether the last rule that matches a file excludes it.
func (w *walk) excluded(rel string) bool {
	out := false
	for _, r := range w.Rules {
		if r.matches(rel) {
			out = r.Exclude
		}
	}
	return out
}

// takeOrWait takes a file at once, unless it is so young that a second check is needed.
func (w *walk) takeOrWait(e entry) bool {
	if w.Settled != nil {
		if !w.Settled(e.path, e.info) {
			return w.leave(e.path, Unsettled)
		}
		return w.take(e)
	}
	if time.Since(e.info.ModTime()) >= youngAge {
		return w.take(e)
	}
	w.young = append(w.young, e)
	w.looked = time.Now()
	if len(w.young) < maxYoung {
		return true
	}
	return w.takeSettled()
}

// finish handles the links to folders and the young files.
func (w *walk) finish() bool {
	for len(w.links) > 0 {
		l := w.links[0]
		w.links = w.links[1:]
		if !w.folder(l.path, l.rel, l.info) {
			return false
		}
	}
	return w.takeSettled()
}

// takeSettled takes the young files that have not changed meanwhile.
func (w *walk) takeSettled() bool {
	if len(w.young) == 0 {
		return true
	}
	if err := Sleep(w.ctx, time.Until(w.looked.Add(settleTime))); err != nil {
		return w.fatal(err)
	}
	files := w.young
	w.young = nil
	for _, e := range files {
		now, err := w.stat(e.path, e.rel)
		switch {
		case err != nil:
			if !w.wrong(e.path, err) {
				return false
			}
		case now.Size() != e.info.Size() || !now.ModTime().Equal(e.info.ModTime()):
			if !w.leave(e.path, Unsettled) {
				return false
			}
		case !w.take(e):
			return false
		}
	}
	return true
}

// take makes an item from a file of a folder, or notes why it is left out.
func (w *walk) take(e entry) bool {
	n := w.Template
	var err error
	if n.Key, err = filepath.Abs(e.path); err == nil {
		n.Fingerprint, err = w.fingerprint(e.info, func() (*os.File, error) { return w.open(e.path, e.rel) })
	}
	if err == nil {
		n.Given, n.Payload = w.given(nil), w.payload(w.fills(n.Key, e.info))
		err = ledger.CheckItem(n)
	}
	if err != nil {
		return w.wrong(e.path, err)
	}
	n.Source = w.root
	return w.found(e.path, n, w.origin)
}

// Sleep waits for d; it returns an error if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
