//go:build chaos

package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	_ "unsafe" // for the clock

	"github.com/ledgerd/ledgerd/internal/history"
)

// Env names the environment variable that arms a point.
const Env = "LEDGERD_FAILPOINT"

var (
	point  string
	signal = syscall.SIGKILL
	left   atomic.Int64 // passages until it acts
)

func init() {
	name, rest, _ := strings.Cut(os.Getenv(Env), ":")
	passages, how, _ := strings.Cut(rest, ":")
	n, err := strconv.ParseInt(passages, 10, 64)
	if name == "" || err != nil {
		return
	}
	if how == "stop" {
		signal = syscall.SIGSTOP
	}
	point = name
	left.Store(n)
}

// Here ends or freezes the process if the point of this name is armed and this is the passage to act at. It first
// records the point in the history.
func Here(name string) {
	if name != point || left.Add(-1) != 0 {
		return
	}
	if log := history.Ours(); log != nil {
		log.Write(history.Line{Phase: history.Mark, Op: history.OpPoint, Agent: name})
	}
	_ = syscall.Kill(os.Getpid(), signal)
	if signal == syscall.SIGKILL {
		select {} // until the signal arrives
	}
}

// chaosOffset is added to the wall clock, in nanoseconds. The harness builds package time with
// it; see internal/chaostest.
//
//go:linkname chaosOffset time.chaosOffset
var chaosOffset int64

// The file PROGRAM.clock has the error of the wall clock of the program's processes, in nanoseconds. A plugin is the
// same program, so it has the same error.
func init() {
	self, err := os.Executable()
	if err != nil {
		return
	}
	if text, err := os.ReadFile(self + ".clock"); err == nil {
		chaosOffset, _ = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	}
}
