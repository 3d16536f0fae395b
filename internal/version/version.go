// Package version knows which build of ledgerd this is, and from which clone it was built.
package version

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"sync"
)

// version is set by the linker; String also knows builds without it.
var version string

// String is the version of this build: the linker's value, else the module's.
func String() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// Build is the commit that this program was built from, "" where the go command did not see one.
type Build struct {
	Commit string // of git, in full
	Time   string // of the commit, RFC 3339
	Dirty  bool   // the tree had changes beyond the commit
}

// ThisBuild reads what the go command has noted in the program.
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

// Clone is the folder of the clone that this program was built in, "" if it is not on this machine. A program that the
// go command was not told to trim has the paths of its sources in it; one that was lies somewhere in the clone.
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

// above is the nearest clone at or above a folder.
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

var ours = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^module github\.com/ledgerd/ledgerd\s*$`)
})

// IsClone reports whether a folder is the root of a clone. The module cache is none: it has go.mod but no .git.
func IsClone(dir string) bool {
	mod, err := os.ReadFile(filepath.Join(filepath.Clean(dir), "go.mod"))
	if err != nil || !ours().Match(mod) {
		return false
	}
	_, err = os.Stat(filepath.Join(dir, ".git"))
	return err == nil
}
