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

// nameOf is Name on Linux.
func nameOf(pid int) string {
	place, stat := origin(), readStat(pid)
	if place == "" || stat == nil {
		return ""
	}
	return fmt.Sprintf("%s/%d/%s", place, pid, stat.began)
}

// origin is what a number of a process and its beginning count in: the boot, the namespaces of process
// numbers and of times since the boot, and the user, since we do not see into processes of others.
func origin() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(bytes.TrimSpace(boot)) == 0 {
		return ""
	}
	// A /proc of another namespace of numbers would show others under ours.
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return ""
	}
	numbers, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	times, err := os.Readlink("/proc/self/ns/time")
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // Linux has them since 5.6
		return ""
	}
	return fmt.Sprintf("%s/%s/%s/%d", bytes.TrimSpace(boot), numbers, times, os.Geteuid())
}

// isGone reports whether the process of that name and number is gone, with all that carries its name.
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
			return false // it lives, or we are not shown
		}
	}
	return !started(name)
}

// stat is what is said of a process.
type stat struct {
	began string // in ticks since the boot
	dead  bool   // its end was not waited for yet, but it runs no more
}

// readStat is nil if the process cannot be seen.
func readStat(pid int) *stat {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	// The name of the program is in parentheses, and may have any in it. Behind it are the fields from the
	// third on: state, … the 20th how many threads, … the 22nd when it began.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 {
		return nil
	}
	// The first thread may have ended while others run.
	dead := slices.Contains([]string{"Z", "X"}, fields[0]) && slices.Contains([]string{"0", "1"}, fields[17])
	return &stat{fields[19], dead}
}

// started reports whether there may be a process that was started by the process of that name.
func started(name string) bool {
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil || len(processes) == 0 {
		return true
	}
	mark := []byte(Variable + "=" + name + "\x00")
	for _, dir := range processes {
		// It has ended meanwhile, or is another user's.
		environment, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err == nil && (bytes.HasPrefix(environment, mark) || bytes.Contains(environment, append([]byte{0}, mark...))) {
			return true
		}
	}
	return false
}
