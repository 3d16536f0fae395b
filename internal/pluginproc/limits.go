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

// Limits of what a plugin may take, with the processes that it starts and that stay in its process
// group. 0 is no limit.
type Limits struct {
	Memory    int64 // bytes in memory and in swap, of all of them together
	CPU       int   // cores that they may run on
	OpenFiles int   // of each process
	Processes int   // itself included
}

// ErrLimit ends a process that is beyond one of its limits; its CrashError wraps it.
var ErrLimit = errors.New("over its limit")

// LimitsKept reports whether limits are kept on this system.
const LimitsKept = limitsKept

// watchEvery is the time between two looks at what a process has; at every fourth it is looked for
// processes that have come.
const watchEvery = 250 * time.Millisecond

// InForce describes how each limit is kept on this system, a line each.
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

// env is what the limits put into the environment of a plugin that sets nothing else.
func (l Limits) env(env []string) []string {
	const name = "GOMEMLIMIT="
	if l.Memory <= 0 || slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, name) }) {
		return env
	}
	return append(env, name+fmt.Sprint(l.Memory/10*9))
}

// check names the limit that the processes exceed, nil if none.
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

// keepLimits looks at what a process and its children take until it has ended, and ends it if that is
// too much.
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

// exceed ends a process that takes too much.
func (p *process) exceed(err error) {
	p.mu.Lock()
	if p.state == nil && p.over == nil {
		p.over = err
	}
	p.mu.Unlock()
	p.signal(syscall.SIGKILL)
}

// exceeded names the limit that the process exceeded, nil if none.
func (p *process) exceeded() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over
}
