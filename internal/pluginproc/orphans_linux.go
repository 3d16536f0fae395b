package pluginproc

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ledgerd/ledgerd/sdk/wire"
)

// Orphans finds processes of this user that were started as plugins, and whose host is gone: their
// parent is neither this program nor one that is called ledgerd.
func Orphans() (all []Orphan) {
	self, _ := os.Executable()
	cookie := []byte(wire.CookieKey + "=" + wire.CookieValue)
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range processes {
		environment, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil || !hasLine(environment, cookie) {
			continue
		}
		parent := parentOf(dir)
		name, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(parent), "comm"))
		program, _ := os.Readlink(filepath.Join("/proc", strconv.Itoa(parent), "exe"))
		if parent == 0 || bytes.HasPrefix(name, []byte("ledgerd")) || program == self {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		command, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		all = append(all, Orphan{pid, strings.TrimSpace(strings.ReplaceAll(string(command), "\x00", " "))})
	}
	return all
}

func hasLine(environment, line []byte) bool {
	for entry := range bytes.SplitSeq(environment, []byte{0}) {
		if bytes.Equal(entry, line) {
			return true
		}
	}
	return false
}

// parentOf is the parent of a process, 0 if that is gone: the second field behind its name, which
// may have any characters.
func parentOf(dir string) int {
	stat, _ := os.ReadFile(filepath.Join(dir, "stat"))
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 || fields[0] == "Z" {
		return 0
	}
	pid, _ := strconv.Atoi(fields[1])
	return pid
}
