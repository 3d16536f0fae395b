package pluginproc

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const limitsKept = true

// pin restricts the calling thread to a number of its cores until undo is called. Processes that it starts meanwhile
// keep the restriction. 0 means all cores.
func pin(cores int) (undo func(), err error) {
	var have, want unix.CPUSet
	if cores <= 0 {
		return func() {}, nil
	}
	if err := unix.SchedGetaffinity(0, &have); err != nil {
		return nil, fmt.Errorf("its cores cannot be limited: %w", err)
	}
	var all []int
	for i := range len(have) * 64 {
		if have.IsSet(i) {
			all = append(all, i)
		}
	}
	first := rand.IntN(max(1, len(all))) // spreads plugins over the cores
	for i := range min(cores, len(all)) {
		want.Set(all[(first+i)%len(all)])
	}
	if err := unix.SchedSetaffinity(0, &want); err != nil {
		return nil, fmt.Errorf("its cores cannot be limited: %w", err)
	}
	return func() { _ = unix.SchedSetaffinity(0, &have) }, nil
}

// limitFiles sets the most open files of a process and of the processes that it starts from now on.
func limitFiles(pid, files int) error {
	if files <= 0 {
		return nil
	}
	var have unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &have); err != nil {
		return fmt.Errorf("its open files cannot be limited: %w", err)
	}
	most := min(uint64(files), have.Max)
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: most}, nil); err != nil {
		return fmt.Errorf("its open files cannot be limited: %w", err)
	}
	return nil
}

// group returns the processes of a process group.
func group(id int) []int {
	return processes(func(_ string, pid int) bool { return isIn(id, pid) })
}

// isIn reports whether a process belongs to a group and has not ended.
func isIn(group, pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // state, parent, group …
	return len(fields) >= 3 && fields[0] != "Z" && fields[2] == strconv.Itoa(group)
}

// memoryOf is the number of bytes that processes have in memory and in swap; shared pages count for each. A number may
// belong to another process by now, so processes outside of the group do not count.
func memoryOf(group int, pids []int) (sum int64) {
	for _, pid := range pids {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil || !isIn(group, pid) { // the group is checked after the read, so the read was of the group's process
			continue
		}
		for s := bufio.NewScanner(bytes.NewReader(status)); s.Scan(); {
			name, value, _ := strings.Cut(s.Text(), ":")
			if name != "VmRSS" && name != "VmSwap" {
				continue
			}
			kilobytes, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			sum += kilobytes << 10
		}
	}
	return sum
}
