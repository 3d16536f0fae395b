package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// nameOf implements Name.
func nameOf(pid int) string {
	place, stat := origin(), readStat(pid)
	if place == "" || stat == nil {
		return ""
	}
	return fmt.Sprintf("%s/%d/%s", place, pid, stat.began)
}

// origin names the context in which a process number and a start time are unique: the boot, and the namespaces of
// process numbers and of times since the boot. It also has the user: we cannot look into processes of other users.
func origin() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(bytes.TrimSpace(boot)) == 0 {
		return ""
	}
	// A /proc of another namespace would show other processes under our numbers.
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return ""
	}
	numbers, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	times, err := os.Readlink("/proc/self/ns/time")
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // Linux has them only since 5.6
		return ""
	}
	return fmt.Sprintf("%s/%s/%s/%d", bytes.TrimSpace(boot), numbers, times, os.Geteuid())
}

// isGone implements Gone.
func isGone(name string, pid int) bool {
	place := origin()
	rest, ours := strings.CutPrefix(name, place+"/")
	number, began, _ := strings.Cut(rest, "/")
	if place == "" || !ours || number != strconv.Itoa(pid) || pid <= 0 || began == "" {
		return false
	}
	if !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		stat := readStat(pid)
		if stat == nil || stat.began == began && !stat.dead {
			return false // it lives, or we cannot see it
		}
	}
	return !started(name)
}

// stat is a part of /proc/PID/stat.
type stat struct {
	began string // in ticks since the boot
	dead  bool   // it has ended, but its parent has not waited for it
}

// readStat returns nil if this process cannot see the other one.
func readStat(pid int) *stat {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	// The second field is the name of the program, in parentheses, and may contain parentheses. After it come the third,
	// the state, … the 20th, the number of threads, … the 22nd, the time of the start.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 {
		return nil
	}
	// The first thread may have ended while others run.
	dead := slices.Contains([]string{"Z", "X"}, fields[0]) && slices.Contains([]string{"0", "1"}, fields[17])
	return &stat{fields[19], dead}
}

// started reports whether there may be a process that was started by the process with this name.
func started(name string) bool {
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil || len(processes) == 0 {
		return true
	}
	mark := []byte(Variable + "=" + name + "\x00")
	for _, dir := range processes {
		// An error means that the process has ended meanwhile, or belongs to another user.
		environment, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err == nil && (bytes.HasPrefix(environment, mark) || bytes.Contains(environment, append([]byte{0}, mark...))) {
			return true
		}
	}
	return false
}
