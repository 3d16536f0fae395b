package pluginproc

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
)

// Limits of the resources of a plugin's process group: the plugin, and the processes that it starts and that stay in
// the group. 0 is no limit.
type Limits struct {
	Memory    int64 // bytes in memory and in swap, of all processes together
	CPU       int   // cores on which they may run
	OpenFiles int   // of each process
	Processes int   // in the group, the plugin included
}

// ErrLimit is wrapped by the CrashError of a process that was killed because it exceeded a limit.
var ErrLimit = errors.New("over its limit")

// LimitsKept reports whether this system can enforce limits: only Linux can.
const LimitsKept = limitsKept

// watchEvery is the time between two measurements of memory. Each fourth also looks for new processes.
const watchEvery = 250 * time.Millisecond

// InForce describes how each limit is enforced on this system, one line for each.
func (l Limits) InForce() (lines []string) {
	for _, x := range []struct {
		has       bool
		what, how string
	}{
		{l.Memory > 0, "memory " + humanize.IBytes(uint64(max(0, l.Memory))),
			fmt.Sprintf("looked at every %s, ended if it has more; GOMEMLIMIT at nine tenths", watchEvery)},
		{l.CPU > 0, english.Plural(l.CPU, "core", ""), "processor affinity"},
		{l.OpenFiles > 0, fmt.Sprintf("%d open files", l.OpenFiles), "RLIMIT_NOFILE, of each process"},
		{l.Processes > 0, fmt.Sprintf("%d processes", l.Processes), fmt.Sprintf("counted every %s, ended if there are more",
			4*watchEvery)},
	} {
		if x.has && LimitsKept {
			lines = append(lines, x.what+": "+x.how)
		} else if x.has {
			lines = append(lines, x.what+": not kept on this system")
		}
	}
	return lines
}

// watched reports whether the usage of the processes has to be measured.
func (l Limits) watched() bool { return l.Memory > 0 || l.Processes > 0 }

// env adds GOMEMLIMIT to an environment if memory is limited and the environment does not set it.
func (l Limits) env(env []string) []string {
	const name = "GOMEMLIMIT="
	if l.Memory <= 0 || slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, name) }) {
		return env
	}
	return append(env, name+fmt.Sprint(l.Memory/10*9))
}

// check returns the error of the limit that is exceeded, nil if none is. memory is in bytes.
func (l Limits) check(memory int64, processes int) error {
	switch {
	case l.Memory > 0 && memory > l.Memory:
		return fmt.Errorf("%w: %s of memory, %s are allowed", ErrLimit, humanize.IBytes(uint64(memory)),
			humanize.IBytes(uint64(l.Memory)))
	case l.Processes > 0 && processes > l.Processes:
		return fmt.Errorf("%w: %d processes, %d are allowed", ErrLimit, processes, l.Processes)
	}
	return nil
}

// keepLimits measures the process group until the process has ended, and kills the group if it exceeds a limit.
func (p *process) keepLimits(l Limits) {
	tick := time.Tick(watchEvery)
	var pids []int
	for look := 0; ; look++ {
		select {
		case <-p.exited:
			return
		case <-tick:
		}
		if look%4 == 0 {
			pids = group(p.number())
		}
		if err := l.check(memoryOf(p.number(), pids), len(pids)); err != nil {
			p.exceed(err)
			return
		}
	}
}

// exceed kills a process that exceeds a limit.
func (p *process) exceed(err error) {
	p.mu.Lock()
	if p.state == nil && p.over == nil {
		p.over = err
	}
	p.mu.Unlock()
	p.signal(syscall.SIGKILL)
}

// exceeded returns the error of the limit that the process exceeded, nil if it exceeded none.
func (p *process) exceeded() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over
}
