package pluginproc

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ledgerd/ledgerd/sdk/wire"
)

// Orphans finds processes of this user that were started as plugins with one of these programs, and whose host has
// ended: a host holds the lock of the socket's directory while it lives. Paths are compared without links. A script is
// recognized by its first argument.
func Orphans(programs []string) (all []Orphan) {
	var known []string
	for _, path := range programs {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		known = append(known, path)
	}
	processes, _ := filepath.Glob("/proc/[0-9]*") // only a bad pattern fails
	for _, dir := range processes {
		info, err := os.Stat(dir)
		if err != nil || !isOurs(info) {
			continue
		}
		environment, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil || variable(environment, wire.CookieKey) != wire.CookieValue ||
			hosted(dir, variable(environment, socketDirKey)) {
			continue
		}
		command, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // fails if the process has just ended
		args := strings.Split(strings.TrimSuffix(string(command), "\x00"), "\x00")
		program, _ := os.Readlink(filepath.Join(dir, "exe"))
		runs := []string{strings.TrimSuffix(program, " (deleted)")} // the system's mark of a file that was replaced
		if len(args) > 1 {
			runs = append(runs, args[1])
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && slices.ContainsFunc(runs, func(path string) bool {
			return slices.Contains(known, path)
		}) {
			all = append(all, Orphan{pid, strings.Join(args, " ")})
		}
	}
	return all
}

// socketDirKey is the environment variable with the directory of a plugin's socket. go-plugin makes it in a socketDir.
const socketDirKey = "PLUGIN_UNIX_SOCKET_DIR"

// hosted reports whether the host of a process lives. It returns true if that cannot be known: a process that a person
// started has no directory of ours. The path is resolved as the process sees it, because each service may have its own
// folder for temporary files.
func hosted(process, socket string) bool {
	dir := filepath.Dir(socket)
	if !strings.HasPrefix(filepath.Base(dir), dirPrefix) {
		return true // not a directory of a host
	}
	lock, err := lockDir(filepath.Join(process, "root", dir))
	if err != nil {
		return !os.IsNotExist(err)
	}
	_ = lock.Close()
	return false
}

// variable is the value of a variable in the environment of a process, "" if it is not set.
func variable(environment []byte, name string) string {
	for entry := range bytes.SplitSeq(environment, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(name+"=")); ok {
			return string(value)
		}
	}
	return ""
}
