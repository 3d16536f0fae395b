// Package version knows which build of ledgerd this is, and from which clone it was built.
package version

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"

	"github.com/ledgerd/ledgerd/internal/lazyregexp"
)

// version is set by the linker, -X.
var version string

// String returns the version of this build: the linker's value, else the module's, else "unknown".
func String() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// Build is the commit that this program was built from; empty if the go command did not record one.
type Build struct {
	Commit string // of git, in full
	Time   string // of the commit, RFC 3339
	Dirty  bool   // the tree had changes beyond the commit
}

// ThisBuild returns what the go command recorded in this program.
func ThisBuild() (b Build) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Dirty = s.Value == "true"
		}
	}
	return b
}

// Clone returns the folder of the clone that this program was built in, "" if it is not on this machine. A program that
// was built without -trimpath has the paths of its sources in it; else Clone looks above the folder of the program.
func Clone() string {
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		if root := filepath.Dir(filepath.Dir(filepath.Dir(file))); IsClone(root) {
			return root
		}
	}
	program, err := os.Executable()
	if err != nil {
		return ""
	}
	if real, err := filepath.EvalSymlinks(program); err == nil {
		program = real
	}
	return above(filepath.Dir(program))
}

// above returns the nearest clone at or above a folder, "" if there is none.
func above(dir string) string {
	for ; ; dir = filepath.Dir(dir) {
		if IsClone(dir) {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

var ours = lazyregexp.New(`(?m)^module github\.com/ledgerd/ledgerd\s*$`)

// IsClone reports whether a folder is the root of a clone of ledgerd: it has go.mod and .git. A folder of the module
// cache has no .git.
func IsClone(dir string) bool {
	mod, err := os.ReadFile(filepath.Join(filepath.Clean(dir), "go.mod"))
	if err != nil || !ours().Match(mod) {
		return false
	}
	_, err = os.Stat(filepath.Join(dir, ".git"))
	return err == nil
}
