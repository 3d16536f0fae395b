// Package stracetest runs programs under strace, for tests that look at their system calls or let
// them fail.
//
// Without strace, or where a process may not be traced, a test fails with advice; it is never skipped. An ordinary
// container may trace. A container with a strict seccomp profile, or without ptrace in its kernel, may not.
package stracetest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// permitted returns the path of strace if a process may be traced here.
var permitted = sync.OnceValues(func() (path string, err error) {
	path, err = exec.LookPath("strace")
	if err != nil {
		return "", fmt.Errorf("%w; apt-get install strace", err)
	}
	dir, err := os.MkdirTemp("", "strace")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if said, err := exec.Command(path, "-f", "-o", filepath.Join(dir, "trace"), "true").CombinedOutput(); err != nil {
		return "", fmt.Errorf("a process may not be traced here: %w\n%s"+
			"in a container, allow it: docker run --cap-add SYS_PTRACE --security-opt seccomp=unconfined", err, said)
	}
	return path, nil
})

// Trace is the output of strace for one run.
type Trace struct{ path string }

// Wrap changes a command before its start so that it runs under strace with these options, with all its threads and
// children. Its stdout, stderr and exit code stay the same.
func Wrap(t testing.TB, cmd *exec.Cmd, options ...string) Trace {
	t.Helper()
	strace, err := permitted()
	if err != nil {
		t.Fatalf("stracetest: %v", err)
	}
	trace := Trace{filepath.Join(t.TempDir(), "trace")}
	// -a 1: no padding before "= "
	args := append([]string{strace, "-f", "-qq", "-y", "-a", "1", "-o", trace.path}, options...)
	cmd.Args = append(append(args, "--", cmd.Path), cmd.Args[1:]...)
	cmd.Path = strace
	return trace
}

// Call is one system call.
type Call struct {
	Name     string
	Args     string // as strace prints them
	Result   string // "4096", "-1 EIO (Input/output error) (INJECTED)"; "" if it did not return
	Begun    int    // the line of the trace, from 0
	Returned int    // the same; -1 if it did not return
}

// Injected reports whether strace made the call fail.
func (c Call) Injected() bool { return strings.Contains(c.Result, "INJECTED") }

var (
	line       = regexp.MustCompile(`^([0-9]+) +(?:<\.\.\. )?([a-z0-9_]+)(\(| resumed>)(.*)$`)
	unfinished = " <unfinished ...>"
)

// Calls reads the trace. It returns the calls of all threads in the order in which they began.
func (tr Trace) Calls(t testing.TB) (calls []Call) {
	t.Helper()
	f, err := os.Open(tr.path)
	if err != nil {
		t.Fatalf("stracetest: %v", err)
	}
	defer f.Close()
	open := map[int]int{} // thread → index of its call that has not returned
	moment := 0
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for ; s.Scan(); moment++ {
		parts := line.FindStringSubmatch(s.Text())
		if parts == nil { // a signal, an exit
			continue
		}
		thread, err := strconv.Atoi(parts[1])
		if err != nil {
			t.Fatalf("stracetest: %q: %v", s.Text(), err)
		}
		rest := parts[4]
		i, waits := open[thread]
		if !waits || parts[3] == "(" {
			i = len(calls)
			calls = append(calls, Call{Name: parts[2], Begun: moment, Returned: -1})
		}
		delete(open, thread)
		c := &calls[i]
		if args, ok := strings.CutSuffix(rest, unfinished); ok {
			c.Args += args
			open[thread] = i
			continue
		}
		args, result, ended := cutLast(rest, ") = ")
		c.Args += args
		if ended && result != "?" { // "?": it was killed in the call, or was an exit
			c.Result, c.Returned = result, moment
		}
	}
	if err := s.Err(); err != nil {
		t.Fatalf("stracetest: %v", err)
	}
	return calls
}

// cutLast is strings.Cut at the last sep.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
