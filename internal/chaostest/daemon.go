package chaostest

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/internal/history"
)

// daemon is one process of ledgerd.
type daemon struct {
	cmd    *exec.Cmd
	began  int64         // CLOCK_MONOTONIC
	exited chan struct{} // closed at its end
	agent  string        // its name, of a process that works under a name of its own
	stdin  io.Closer     // of an agent
	ended  atomic.Bool   // it was killed, or asked to end
}

// name tells a process by the agent of what it holds: its own name, or its number.
func (d *daemon) name() string { return cmp.Or(d.agent, strconv.Itoa(d.cmd.Process.Pid)) }

// nameOf is the name of a process by its agent.
func nameOf(agent string) string {
	if parts := strings.Split(agent, "/"); len(parts) == 3 {
		return parts[1]
	}
	return agent
}

// command is ledgerd with arguments, in the surroundings of the run. slot distinguishes programs
// whose clocks may differ.
func (r *run) command(slot int, env []string, args ...string) (*exec.Cmd, error) {
	program, err := r.program(slot)
	if err != nil {
		return nil, err
	}
	// A history each: the last line of a process that was killed may be cut off.
	r.processes++
	record := r.path(fmt.Sprintf("history-%d-%d", slot, r.processes))
	cmd := exec.Command(program, args...)
	answerTime := r.plan.bound(10 * time.Second).String()
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "XDG_DATA_HOME=" + r.dir, "TMPDIR=" + os.TempDir(),
		"LEDGERD_DB=" + r.ledgerOf(args[0]), history.Env + "=" + record,
		// Far more than a plugin needs that behaves.
		"LEDGERD_PLUGINS_CHAOS_MEMORY=384MiB", "LEDGERD_PLUGINS_CHAOS_PROCESSES=32", "LEDGERD_PLUGINS_CHAOS_OPEN_FILES=256",
		// As long as usual, or longer where promises of time are stretched.
		"LEDGERD_PLUGINS_CHAOS_ANSWER_TIME=" + answerTime, "LEDGERD_PLUGINS_CHAOSMAIL_ANSWER_TIME=" + answerTime,
	}, env...)
	log, err := os.OpenFile(r.path(fmt.Sprintf("log-%d", slot)), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	r.logs = append(r.logs, log)
	fmt.Fprintf(log, "--- %v %v\n", args, env)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a signal from the terminal is for us
	return cmd, nil
}

// ledgerOf is the ledger of a command: those that work it over HTTP do not reach its database.
func (r *run) ledgerOf(command string) string {
	if r.remote != nil && command == "work" {
		return r.remote.wire.url()
	}
	return r.address
}

// program is the path of the program for a slot: a link of its own, if it has a clock of its own.
func (r *run) program(slot int) (string, error) {
	if r.plan.Fault != Clock {
		return r.campaign.Program, nil
	}
	path := r.path(fmt.Sprintf("slot-%d/ledgerd", slot))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	return path, os.Link(r.campaign.Program, path)
}

// start starts a daemon that works until it is stopped.
func (r *run) start(slot int, env ...string) (*daemon, error) {
	if r.plan.Fault == Agents {
		return r.startAgent(slot, env)
	}
	args := []string{"work", "--lease", r.plan.Lease.String(), "--grace", grace.String(), "-o", "json"}
	for _, k := range r.plan.Kinds {
		args = append(args, "--kind", k)
	}
	return r.launch(slot, env, args...)
}

// launch starts a process that goes on until it is stopped.
func (r *run) launch(slot int, env []string, args ...string) (*daemon, error) {
	cmd, err := r.command(slot, env, args...)
	if err != nil {
		return nil, err
	}
	return begin(cmd)
}

// begin starts a process.
func begin(cmd *exec.Cmd) (*daemon, error) {
	d := &daemon{cmd: cmd, began: history.Now(), exited: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait() // how it ended is in its ProcessState
		close(d.exited)
	}()
	return d, nil
}

// gone reports whether the process has ended.
func (d *daemon) gone() bool {
	select {
	case <-d.exited:
		return true
	default:
		return false
	}
}

// signal sends a signal; a process that has ended is none to complain about.
func (d *daemon) signal(s syscall.Signal) {
	if !d.gone() {
		_ = d.cmd.Process.Signal(s)
	}
}

// frozen reports whether the process was stopped by SIGSTOP.
func (d *daemon) frozen() bool { return stateOf(d.cmd.Process.Pid) == "T" }

// stateOf is the state of a process as the kernel names it, "" if there is none.
func stateOf(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	state, _, _ := strings.Cut(rest, " ")
	return state
}

// children are the processes that a process has started.
func children(pid int) (pids []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, path := range tasks {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for field := range strings.FieldsSeq(string(text)) {
			if n, err := strconv.Atoi(field); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}

// stop ends a daemon in order and reports whether it ended in time, and as one that was asked to.
func (d *daemon) stop(patience time.Duration) error {
	early := d.gone()
	d.signal(syscall.SIGTERM)
	wake := time.NewTicker(100 * time.Millisecond) // it may be frozen, or freeze at a failpoint on its way
	defer wake.Stop()
	for end := time.Now().Add(patience); !d.gone() && time.Now().Before(end); {
		select {
		case <-d.exited:
		case <-wake.C:
			d.signal(syscall.SIGCONT)
		}
	}
	if !d.gone() {
		d.signal(syscall.SIGQUIT) // its stacks go to its log
		select {
		case <-d.exited:
		case <-time.After(2 * time.Second):
			d.signal(syscall.SIGKILL)
			<-d.exited
		}
		return fmt.Errorf("that process %d stops %w: %v after SIGTERM", d.cmd.Process.Pid, errNever, patience)
	}
	switch code := d.cmd.ProcessState.ExitCode(); {
	case slices.Contains([]int{0, 3, 130, 143}, code):
		return nil
	case early:
		return fmt.Errorf("process %d %w, with %v", d.cmd.Process.Pid, errEarly, d.cmd.ProcessState)
	default:
		return fmt.Errorf("process %d, asked to stop, ended with %v", d.cmd.Process.Pid, d.cmd.ProcessState)
	}
}

// errEarly means that a process had ended by itself before it was asked to.
var errEarly = errors.New("ended before it was asked to stop")

// errNever means that an event with a time bound did not happen.
var errNever = errors.New("did not happen in time")
