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

// Orphans finds processes of this user that were started as plugins, run one of these programs, and have
// lost their host. A host holds the lock of their socket's directory for as long as it lives. Paths are
// compared without links; of a script the program is its first argument.
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
		command, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // it may have ended: then there is none
		args := strings.Split(strings.TrimSuffix(string(command), "\x00"), "\x00")
		program, _ := os.Readlink(filepath.Join(dir, "exe"))
		runs := []string{strings.TrimSuffix(program, " (deleted)")} // its file was replaced
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

// socketDirKey is the variable with which go-plugin gives a plugin the directory of its socket: a
// directory below ours.
const socketDirKey = "PLUGIN_UNIX_SOCKET_DIR"

// hosted reports whether the host of a process lives, or whether that cannot be known: a process that a
// person has started has no such directory. It is looked at as the process sees it: the folder for
// temporary files may be another one for each service.
func hosted(process, socket string) bool {
	dir := filepath.Dir(socket)
	if !strings.HasPrefix(filepath.Base(dir), dirPrefix) {
		return true // no host's, or another one's
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
