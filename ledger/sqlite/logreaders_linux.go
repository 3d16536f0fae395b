package sqlite

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger/internal/wait"
)

// A reader of the write-ahead log holds a shared lock of one of these bytes of its index,
// the -shm file (sqlite.org/walformat.html).
const firstReadLock, lastReadLock = 123, 127

// Most readers hold such a lock for a moment. A process that has one at every check reads for long, or is frozen.
const (
	looks     = 6
	lookPause = 50 * time.Millisecond
)

// logReaders returns the names of the processes that read for long, of those that this user may see. It does not open
// the index: closing it would drop the locks that SQLite holds on it in this process.
func logReaders(ctx context.Context, f *file) (names []string) {
	for look := range looks {
		if look > 0 && wait.For(ctx, lookPause) != nil {
			return nil
		}
		now := readersNow(f.path + "-shm")
		if look == 0 {
			names = now
		}
		names = slices.DeleteFunc(names, func(n string) bool { return !slices.Contains(now, n) })
	}
	return names
}

func readersNow(index string) (names []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range files {
		if to, err := os.Readlink(fd); err != nil || to != index {
			continue
		}
		process := filepath.Dir(filepath.Dir(fd))
		info, err := os.ReadFile(filepath.Join(process, "fdinfo", filepath.Base(fd)))
		if err != nil || !reads(string(info)) {
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

// reads reports whether there is a reader's lock among lines such as
// "lock:	1: POSIX  ADVISORY  READ 4711 fe:00:1234 124 124".
func reads(fdinfo string) bool {
	for line := range strings.Lines(fdinfo) {
		f := strings.Fields(line)
		if len(f) < 9 || f[0] != "lock:" || f[4] != "READ" {
			continue
		}
		from, err1 := strconv.Atoi(f[7])
		to, err2 := strconv.Atoi(f[8])
		if err1 == nil && err2 == nil && from <= lastReadLock && to >= firstReadLock {
			return true
		}
	}
	return false
}
