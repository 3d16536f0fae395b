package pluginproc

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// leftovers finds running processes that a plugin has started, also those outside of its process group: they have
// inherited the mark in their environment. A process that was started with a new environment is not found.
func leftovers(mark string) []int {
	return processes(func(dir string, _ int) bool {
		info, err := os.Stat(dir)
		if err != nil || !isOurs(info) {
			return false
		}
		environment, err := os.ReadFile(filepath.Join(dir, "environ")) // empty after the process has ended
		return err == nil && bytes.Contains(environment, []byte(mark)) && variable(environment, markKey) == mark
	})
}

// processes returns the numbers of the processes of this machine that match; dir is the folder of one in /proc.
func processes(match func(dir string, pid int) bool) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*") // only a bad pattern fails
	for _, dir := range all {
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && match(dir, pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// endLeftovers kills the leftovers of a plugin that has ended, and returns their numbers. It looks up to three times:
// leftovers may start processes meanwhile.
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

// variable is the value of a variable in the environment of a process, "" if it is not set.
func variable(environment []byte, name string) string {
	for entry := range bytes.SplitSeq(environment, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(name+"=")); ok {
			return string(value)
		}
	}
	return ""
}
