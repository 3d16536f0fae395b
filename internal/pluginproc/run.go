package pluginproc

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/sdk/wire"
)

// process is the operating system's process and its pipes. It implements go-plugin's runner.Runner, and gives go-plugin
// only the handshake line.
type process struct {
	cmd    *exec.Cmd
	limits Limits
	stdin  *os.File   // our end; the plugin ends when it closes, also when the host dies
	stdout *os.File   // our end
	stderr *os.File   // our end
	theirs []*os.File // the plugin's ends
	out    *output    // of stdout, after the handshake line
	err    *output    // of stderr
	tail   *tail      // of stderr
	mark   string     // random; in its environment, inherited by the processes that it starts

	lineR *io.PipeReader // go-plugin reads the handshake line here …
	lineW *io.PipeWriter // … and we write it there

	exited chan struct{} // closed after it was reaped and its output was read

	mu     sync.Mutex
	pid    int              // 0 until it is started
	state  *os.ProcessState // nil until it is reaped
	doomed bool             // signal was called, perhaps before it was started
	bad    *StartError      // the error of its handshake; nil if there is none
	over   error            // the limit that it exceeded; nil if it exceeded none
	left   []int            // processes outside of its group that were killed after it
}

// exitRead is how long output is read after the end of the process. A grandchild outside of the process group may keep
// the pipes open for ever.
const exitRead = time.Second

// markKey is the variable of the environment that marks all processes of one plugin process.
const markKey = "LEDGERD_MARK"

// newProcess prepares a start of the program with spec.Path as its name: some programs behave according to their name.
func newProcess(spec *Spec, program string, log *log) (*process, error) {
	p := &process{cmd: &exec.Cmd{Path: program, Args: append([]string{spec.Path}, spec.Args...)}, limits: spec.Limits,
		tail: new(tail), mark: rand.Text(), exited: make(chan struct{})}
	p.out = newOutput("stdout", log.line, nil)
	p.err = newOutput("stderr", log.line, p.tail)
	p.lineR, p.lineW = io.Pipe()
	p.cmd.Dir = spec.Dir
	p.cmd.Env = append(spec.Environ(), markKey+"="+p.mark)
	p.cmd.SysProcAttr = OwnGroup()
	dieWithParent(p.cmd.SysProcAttr)

	// The pipes of os/exec do not fit: its Wait closes them before all output is read.
	inR, inW, err1 := os.Pipe()
	outR, outW, err2 := os.Pipe()
	errR, errW, err3 := os.Pipe()
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = inR, outW, errW
	p.stdin, p.stdout, p.stderr = inW, outR, errR
	p.theirs = []*os.File{inR, outW, errW}
	if err := errors.Join(err1, err2, err3); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// close closes our ends, and theirs if the process was never started.
func (p *process) close() {
	closeAll(p.stdin, p.stdout, p.stderr)
	closeAll(p.theirs...)
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		_ = f.Close() // nil is an error, too
	}
}

// Start starts the process and the goroutines that read its output.
func (p *process) Start(context.Context) error {
	started := make(chan error, 1)
	go p.run(started)
	return <-started
}

// run starts the process and waits for its end. It stays on one OS thread, because Linux sends the signal of
// dieWithParent when the thread that started the process ends.
func (p *process) run(started chan<- error) {
	defer lockThread()()
	err := p.launch()
	closeAll(p.theirs...)
	if err != nil {
		p.close()
		_ = p.lineW.Close()
		started <- err
		return
	}
	p.born()
	started <- nil
	if p.limits.watched() {
		go p.keepLimits(p.limits)
	}
	read := make(chan struct{}, 2)
	go func() { p.readStdout(); read <- struct{}{} }()
	go func() { p.err.copyFrom(p.stderr); read <- struct{}{} }()

	awaitEnd(p.cmd)
	p.reap()
	late := time.AfterFunc(exitRead, func() { closeAll(p.stdout, p.stderr) })
	<-read
	<-read
	late.Stop()
	p.close()
	close(p.exited)
}

// launch starts the program under its limits. If a limit cannot be set, the program does not run.
func (p *process) launch() error {
	undo, err := pin(p.limits.CPU)
	if err != nil {
		return err
	}
	defer undo()
	if err := p.cmd.Start(); err != nil {
		return err
	}
	if err := limitFiles(p.cmd.Process.Pid, p.limits.OpenFiles); err != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait() // killed
		return err
	}
	return nil
}

// born notes the number of the started process, and kills it if signal was called before.
func (p *process) born() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid = p.cmd.Process.Pid
	if p.doomed {
		_ = KillGroup(p.pid, syscall.SIGKILL)
	}
}

// reap kills the rest of the process group, then reaps the process. Its number is not reused before.
func (p *process) reap() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = KillGroup(p.pid, syscall.SIGKILL) // fails if the group is empty
	_ = p.cmd.Wait()                      // p.state has the error
	p.left = killLeftovers(p.mark)
	p.state = p.cmd.ProcessState
}

// signal sends a signal to the process group, unless the process has ended. A process that is not started yet is killed
// when it is.
func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != nil {
		return
	}
	p.doomed = true
	if p.pid > 0 {
		_ = KillGroup(p.pid, sig) // fails if it has just ended
	}
}

// number is the number of the process, 0 if it was not started.
func (p *process) number() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// ended describes how the process ended, "" if it has not.
func (p *process) ended() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == nil {
		return ""
	}
	if ws, ok := p.state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return fmt.Sprintf("was killed by signal %d (%v)", int(ws.Signal()), ws.Signal())
	}
	return fmt.Sprintf("exited with %d", p.state.ExitCode())
}

// readStdout passes the handshake line to go-plugin and the other lines to the log.
func (p *process) readStdout() {
	r := bufio.NewReaderSize(p.stdout, handshakeMax)
	line, err := firstLine(r)
	if bad := checkHandshake(line, err); bad != nil {
		p.mu.Lock()
		p.bad = bad
		p.mu.Unlock()
	} else {
		_, _ = io.WriteString(p.lineW, line+"\n") // go-plugin reads it, or has given up
	}
	_ = p.lineW.Close()
	p.out.copyFrom(r)
}

// handshake returns the error of the handshake, nil without one or before the handshake.
func (p *process) handshake() *StartError {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bad
}

// checkHandshake checks the first line on stdout; see package wire. It returns nil for a plugin that ended without a
// line: explain then describes how the process ended.
func checkHandshake(line string, err error) *StartError {
	fields := strings.Split(line, "|")
	if len(fields) < 5 || fields[0] != "1" {
		if line == "" && err != nil && !errors.Is(err, errNoLine) {
			return nil
		}
		return &StartError{
			Step:    StepHandshake,
			Problem: "it wrote to stdout before the handshake",
			Hint:    fmt.Sprintf("got: %q    stdout belongs to the handshake; print to stderr or use it.Log", cut(line, 200)),
		}
	}
	if fields[1] != strconv.Itoa(wire.Version) {
		return &StartError{
			Step:    StepHandshake,
			Problem: fmt.Sprintf("it speaks only protocol %s, this ledgerd speaks %d", cut(fields[1], 20), wire.Version),
			Hint:    "use a version of the plugin, or of ledgerd, that fits the other",
		}
	}
	if fields[2] != "unix" || fields[4] != "grpc" {
		return &StartError{
			Step:    StepHandshake,
			Problem: fmt.Sprintf("it offers %s over %s, ledgerd speaks grpc over unix", cut(fields[4], 20), cut(fields[2], 20)),
		}
	}
	return nil
}

func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}

// The rest of runner.Runner.

func (p *process) Wait(context.Context) error      { <-p.exited; return nil }
func (p *process) Kill(context.Context) error      { p.signal(syscall.SIGKILL); return nil }
func (p *process) Stdout() io.ReadCloser           { return p.lineR }
func (p *process) Stderr() io.ReadCloser           { return io.NopCloser(strings.NewReader("")) } // nothing to parse
func (p *process) Name() string                    { return p.cmd.Path }
func (p *process) Diagnose(context.Context) string { return "" }
func (p *process) ID() string                      { return fmt.Sprint(p.number()) }

func (p *process) PluginToHost(network, address string) (string, string, error) {
	return network, address, nil
}

func (p *process) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}
