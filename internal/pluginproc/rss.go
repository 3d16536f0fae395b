package pluginproc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// RSS is the resident memory of a process in bytes; 0 if it has ended, and outside of Linux.
func RSS(pid int) int64 {
	if pid == 0 {
		return 0
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	fields := bytes.Fields(text)
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
