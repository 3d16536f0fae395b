//go:build unix

package hostcheck

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/ledgerd/ledgerd/ledger/finding"
)

// enoughFiles is how many open files a worker needs for connections, plugins and their pipes.
const enoughFiles = 1024

// ErrInUse is the error of an address that another program listens on.
const ErrInUse = unix.EADDRINUSE

// files examines how many files a process may open. It reports the hard limit: Go programs raise the soft limit to it.
func files() finding.Finding {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return finding.Warning("files", "the limit of open files cannot be read: "+err.Error(), "it may be too low",
			"ulimit -Hn")
	}
	what := fmt.Sprintf("a process may open %d files", limit.Max)
	if uint64(limit.Max) < enoughFiles {
		return finding.Warning("files", what, "connections and plugins fail with \"too many open files\"",
			"raise it: LimitNOFILE= in the unit, ulimit -n in a shell")
	}
	return finding.Fine("files", what)
}
