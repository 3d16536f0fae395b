package pluginproc

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// leftovers finds processes that a plugin has started and that still run, also those that have left its
// process group: they have inherited the mark that the plugin got in its environment. One that was started
// with an environment of its own is not found.
func leftovers(mark string) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*") // only a bad pattern fails
	for _, dir := range all {
		info, err := os.Stat(dir)
		if err != nil || !isOurs(info) {
			continue
		}
		environment, err := os.ReadFile(filepath.Join(dir, "environ")) // of one that has ended it is empty
		if err != nil || !bytes.Contains(environment, []byte(mark)) || variable(environment, markKey) != mark {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// endLeftovers kills what a plugin that has ended has left behind, and what that starts meanwhile. One that is
// killed may be seen for a while, and is named once.
func endLeftovers(mark string) (ended []int) {
	for range 3 {
		pids := leftovers(mark)
		if len(pids) == 0 {
			return ended
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // ended just now: fine
			if !slices.Contains(ended, pid) {
				ended = append(ended, pid)
			}
		}
	}
	return ended
}
