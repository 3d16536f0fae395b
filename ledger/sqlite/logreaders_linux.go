package sqlite

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
)

// examineLog looks at how much waits in the write-ahead log, and who keeps it there.
func examineLog(f *file) ledger.Finding {
	index, err := os.ReadFile(f.path + "-shm") // SQLite's locks on it are those of open files, which this does not touch
	if err != nil {
		return ledger.Fine("wal", "nobody has the ledger open")
	}
	l, ok := readLogIndex(index)
	if !ok {
		return ledger.Fine("wal", "the write-ahead log is not in use now")
	}
	return examineWaiting(l.waiting(), logReaders(f.path+"-shm", l))
}

// logReaders names the processes, as far as this user may see them, that hold a lock of the log's
// index as readers of an old state. Only the process's own list tells: of locks that belong to an
// open file the system knows no process.
func logReaders(index string, l logIndex) (names []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range files {
		if to, err := os.Readlink(fd); err != nil || to != index {
			continue
		}
		process := filepath.Dir(filepath.Dir(fd))
		info, err := os.ReadFile(filepath.Join(process, "fdinfo", filepath.Base(fd)))
		if err != nil || !slices.ContainsFunc(readLocks(string(info)), l.holds) {
			continue
		}
		command, _ := os.ReadFile(filepath.Join(process, "comm"))
		name := fmt.Sprintf("pid %s (%s)", filepath.Base(process), bytes.TrimSpace(command))
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// readLocks are the offsets of the bytes with a shared lock, from lines such as
// "lock:	1: OFDLCK ADVISORY READ -1 fe:00:1234 124 124".
func readLocks(fdinfo string) (offsets []int) {
	for line := range strings.Lines(fdinfo) {
		f := strings.Fields(line)
		if len(f) < 9 || f[0] != "lock:" || f[4] != "READ" {
			continue
		}
		from, err1 := strconv.Atoi(f[7])
		to, err2 := strconv.Atoi(f[8])
		for at := from; err1 == nil && err2 == nil && at <= to && at < indexSize; at++ {
			offsets = append(offsets, at)
		}
	}
	return offsets
}
