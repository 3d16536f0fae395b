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
	isMark := func(variable []byte) bool { return string(variable) == markKey+"="+mark }
	return processes(func(dir string, _ int) bool {
		info, err := os.Stat(dir)
		if err != nil || !isOurs(info) {
			return false
		}
		environment, err := os.ReadFile(filepath.Join(dir, "environ")) // empty after the process has ended
		return err == nil && slices.ContainsFunc(bytes.Split(environment, []byte{0}), isMark)
	})
}

// processes returns the ids of the processes of this machine that match; dir is the folder of one in /proc.
func processes(match func(dir string, pid int) bool) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*") // only a bad pattern fails
	for _, dir := range all {
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && match(dir, pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// killLeftovers kills the leftovers of a plugin that has ended, and returns their process ids. It looks up to three
// times: leftovers may start processes meanwhile.
func killLeftovers(mark string) (killed []int) {
	for range 3 {
		pids := leftovers(mark)
		if len(pids) == 0 {
			break
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // ended just now: fine
			if !slices.Contains(killed, pid) {
				killed = append(killed, pid)
			}
		}
	}
	return killed
}
