package pluginproc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	dirPrefix = "ledgerd-sock-" // MkdirTemp appends digits
	// addressMax is the longest address of a Unix socket, on macOS; Linux has four more.
	addressMax = 103
	// addressRest is what go-plugin appends: "/plugin-dir0123456789/plugin0123456789".
	addressRest = 38
)

// socketDir is the private directory of one process's socket. The host holds a lock on it while it lives. So later
// hosts recognize the directories of hosts that were killed.
type socketDir struct {
	path string
	lock *os.File
}

func newSocketDir(base string) (*socketDir, error) {
	if base == "" {
		if base = os.TempDir(); len(base)+len(dirPrefix)+11+addressRest > addressMax {
			base = "/tmp"
		}
	}
	sweep(base)
	var err error
	for range makeTries {
		var d *socketDir
		if d, err = makeSocketDir(base); err == nil {
			return d, nil
		}
		if problem, ok := errors.AsType[*StartError](err); ok {
			return nil, problem
		}
	}
	return nil, &StartError{
		Step: StepStart, Err: err, Problem: "no directory for its socket: " + err.Error(),
		Hint: "the environment variable TMPDIR names another directory for sockets",
	}
}

// makeTries is how often a directory is made: another process may sweep it before it is locked.
const makeTries = 100

// makeSocketDir makes a directory and locks it. Before the lock it looks as if its host had been killed.
func makeSocketDir(base string) (*socketDir, error) {
	path, err := os.MkdirTemp(base, dirPrefix) // with mode 0700
	if err != nil {
		return nil, err
	}
	if len(path)+addressRest > addressMax {
		_ = os.Remove(path)
		return nil, &StartError{
			Step: StepStart, Problem: "the path of its socket would be too long, in " + base,
			Hint: "use a shorter directory for sockets",
		}
	}
	lock, err := lockDir(path)
	if err != nil {
		_ = os.Remove(path)
		return nil, err
	}
	locked, err := lock.Stat()
	if err == nil {
		var there fs.FileInfo
		if there, err = os.Lstat(path); err == nil && os.SameFile(locked, there) {
			return &socketDir{path: path, lock: lock}, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("%s was removed", path), err, lock.Close())
}

func (d *socketDir) remove() {
	_ = os.RemoveAll(d.path) // what remains is swept later
	_ = d.lock.Close()
}

func lockDir(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := tryLock(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// sweep removes the socket directories of killed hosts: directories of this user that are not locked. Their age does
// not matter, since clocks may be wrong. A directory that may be another program's stays: its name has more than digits
// after the prefix, or it holds a file.
func sweep(base string) {
	paths, _ := filepath.Glob(filepath.Join(base, dirPrefix+"*")) // only a bad pattern fails
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() || !isOurs(info) || !isSocketDir(path) {
			continue
		}
		if lock, err := lockDir(path); err == nil {
			(&socketDir{path: path, lock: lock}).remove()
		}
	}
}

// isOurs reports whether a file belongs to our user.
func isOurs(info fs.FileInfo) bool {
	uid, ok := owner(info)
	return ok && uid == os.Geteuid()
}

// isSocketDir reports whether a directory has a name that makeSocketDir gives, and holds only sockets and directories.
func isSocketDir(path string) bool {
	if strings.Trim(strings.TrimPrefix(filepath.Base(path), dirPrefix), "0123456789") != "" {
		return false
	}
	only := func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Type() != fs.ModeSocket {
			return fs.ErrExist
		}
		return err
	}
	return filepath.WalkDir(path, only) == nil
}
