//go:build unix

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

// daemon is a process of ledgerd.
type daemon struct {
	cmd    *exec.Cmd
	began  int64         // CLOCK_MONOTONIC
	exited chan struct{} // closed at its end
	agent  string        // the name of a process that works under its own name
	stdin  io.Closer     // of an agent
	ended  atomic.Bool   // the harness has killed it or told it to end
}

// name returns the name by which the agents of a process are recognized: its own name, or its number.
func (d *daemon) name() string { return cmp.Or(d.agent, strconv.Itoa(d.cmd.Process.Pid)) }

// nameOf returns the name of a process from the name of its agent: HOST/PID/RANDOM, or its own name.
func nameOf(agent string) string {
	if parts := strings.Split(agent, "/"); len(parts) == 3 {
		return parts[1]
	}
	return agent
}

// command returns a command of ledgerd with the environment of the run. slot is the number of the daemon's place in the
// run: the daemon that replaces it after a kill has the same.
func (r *run) command(slot int, env []string, args ...string) (*exec.Cmd, error) {
	program, err := r.program(slot)
	if err != nil {
		return nil, err
	}
	// Each process has its own history, since a kill may cut off the last line.
	r.processes++
	record := r.path(fmt.Sprintf("history-%d-%d", slot, r.processes))
	cmd := exec.Command(program, args...)
	config, err := r.config()
	if err != nil {
		return nil, err
	}
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "XDG_DATA_HOME=" + r.dir, "TMPDIR=" + os.TempDir(),
		"LEDGERD_DB=" + r.ledgerOf(args[0]), history.Env + "=" + record,
		"LEDGERD_CONFIG=" + config,
	}, env...)
	log, err := os.OpenFile(r.path(fmt.Sprintf("log-%d", slot)), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	r.logs = append(r.logs, log)
	fmt.Fprintf(log, "--- %v %v\n", args, env)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a signal from the terminal reaches only this process
	return cmd, nil
}

// config returns the path of the config file of the run. The first program that is started writes it. The limits are
// far more than a correct plugin needs. The time for answers is the usual one, times the Patience of the plan.
func (r *run) config() (path string, err error) {
	path = r.path("ledgerd.toml")
	if r.processes == 1 {
		answerTime := r.plan.bound(10 * time.Second).String()
		err = os.WriteFile(path, fmt.Appendf(nil, `[plugins.chaos]
memory = "384MiB"
processes = 32
open_files = 256
answer_time = "%[1]s"
[plugins.chaosmail]
answer_time = "%[1]s"
`, answerTime), 0o600)
	}
	return path, err
}

// ledgerOf returns the address of the ledger for a command. Over HTTP, workers do not reach its database.
func (r *run) ledgerOf(command string) string {
	if r.remote != nil && command == "work" {
		return r.remote.wire.url()
	}
	return r.address
}

// program returns the path of the program for a slot. Under the fault Clock each slot has its own hard link to the
// program: a process finds the error of its clock in a file beside its program, see setClock.
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
	return r.startArgs(slot, env, args...)
}

// startArgs starts a command line that runs until it is stopped.
func (r *run) startArgs(slot int, env []string, args ...string) (*daemon, error) {
	cmd, err := r.command(slot, env, args...)
	if err != nil {
		return nil, err
	}
	return startCmd(cmd)
}

// startCmd starts a command as a daemon.
func startCmd(cmd *exec.Cmd) (*daemon, error) {
	d := &daemon{cmd: cmd, began: history.Now(), exited: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait() // ProcessState has the result
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

// signal sends a signal, unless the process has ended.
func (d *daemon) signal(s syscall.Signal) {
	if !d.gone() {
		_ = d.cmd.Process.Signal(s)
	}
}

// frozen reports whether the process was stopped by SIGSTOP. It works on Linux only; elsewhere it returns false.
func (d *daemon) frozen() bool { return stateOf(d.cmd.Process.Pid) == "T" }

// stateOf returns the state of a process as the kernel names it, "" if there is no process.
func stateOf(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	state, _, _ := strings.Cut(rest, " ")
	return state
}

// children returns the child processes of a process. It works on Linux only; elsewhere it returns none.
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

// stop sends SIGTERM and waits. It returns an error if the process did not end in time, or ended in another way than a
// stopped daemon.
func (d *daemon) stop(patience time.Duration) error {
	early := d.gone()
	d.signal(syscall.SIGTERM)
	wake := time.NewTicker(100 * time.Millisecond) // for a process that is frozen, or freezes at a failpoint
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
		return fmt.Errorf("process %d did not stop within %v after SIGTERM: %w", d.cmd.Process.Pid, patience, errTimeout)
	}
	switch code := d.cmd.ProcessState.ExitCode(); {
	case slices.Contains([]int{0, 3, 130, 143}, code): // ok, unfinished, SIGINT, SIGTERM
		return nil
	case early:
		return fmt.Errorf("process %d %w, with %v", d.cmd.Process.Pid, errEarly, d.cmd.ProcessState)
	default:
		return fmt.Errorf("process %d, asked to stop, ended with %v", d.cmd.Process.Pid, d.cmd.ProcessState)
	}
}

// errEarly means that a process had ended before it was told to.
var errEarly = errors.New("ended before it was asked to stop")

// errTimeout means that a process did not end in time.
var errTimeout = errors.New("timeout")
