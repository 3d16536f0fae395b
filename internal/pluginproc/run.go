package pluginproc

import (
	"bufio"
	"context"
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

// process is the operating system's process and its pipes. It implements go-plugin's
// runner.Runner, and gives go-plugin no more than the handshake line.
type process struct {
	cmd    *exec.Cmd
	limits Limits
	stdin  *os.File   // the plugin ends when this closes, also because we died
	stdout *os.File   // our ends
	stderr *os.File   //
	theirs []*os.File // the plugin's ends
	out    *output
	err    *output
	tail   *tail
	mark   string // in the environment of all that it starts

	lineR *io.PipeReader // go-plugin reads the handshake line here …
	lineW *io.PipeWriter // … and we write it there

	exited chan struct{} // closed when it is reaped and its output was read

	mu     sync.Mutex
	pid    int              // 0 until it is started
	state  *os.ProcessState // nil until it is reaped
	doomed bool             // killed by us, perhaps before it was started
	bad    *StartError      // its bad handshake
	over   error            // the limit that it exceeded
	left   []int            // processes that had left its group, and were ended
}

// exitRead is how long output is read after the end of the process: a grandchild that left
// the process group may hold the pipes open for ever.
const exitRead = time.Second

// newProcess prepares the program to which Path leads, under the name Path: some programs are what
// they are called.
func newProcess(spec *Spec, program string, log *log) (*process, error) {
	p := &process{cmd: &exec.Cmd{Path: program, Args: append([]string{spec.Path}, spec.Args...)}, limits: spec.Limits,
		tail: new(tail), mark: newMark(), exited: make(chan struct{})}
	p.out = newOutput("stdout", log.line, nil)
	p.err = newOutput("stderr", log.line, p.tail)
	p.lineR, p.lineW = io.Pipe()
	p.cmd.Dir = spec.Dir
	p.cmd.Env = append(spec.Environ(), markKey+"="+p.mark)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(p.cmd.SysProcAttr)

	// Not exec's own pipes: its Wait closes those before everything is read.
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

// Start starts the process and what reads its output.
func (p *process) Start(context.Context) error {
	started := make(chan error, 1)
	go p.run(started)
	return <-started
}

// run starts the process and waits for its end. It stays on one OS thread, because Linux
// sends the signal of dieWithParent when the thread that started the process ends.
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
	go func() { p.err.drain(p.stderr); read <- struct{}{} }()

	awaitEnd(p.cmd)
	p.reap()
	late := time.AfterFunc(exitRead, func() { closeAll(p.stdout, p.stderr) })
	<-read
	<-read
	late.Stop()
	p.close()
	close(p.exited)
}

// launch starts the program under its limits. One that cannot be limited does not run.
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

func (p *process) born() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid = p.cmd.Process.Pid
	if p.doomed {
		_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	}
}

// reap ends what the process has left behind in its group and then gives its number back.
func (p *process) reap() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = syscall.Kill(-p.pid, syscall.SIGKILL) // there may be nothing left
	_ = p.cmd.Wait()                          // the state has its error, too
	p.left = endLeftovers(p.mark)
	p.state = p.cmd.ProcessState
}

// signal reaches the whole process group, unless the process has ended. One that is being
// started is killed then.
func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != nil {
		return
	}
	p.doomed = true
	if p.pid > 0 {
		_ = syscall.Kill(-p.pid, sig) // ended just now: fine
	}
}

// number is the process's, 0 if it was not started.
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

// readStdout takes the handshake line for go-plugin and reads the rest for people.
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
	p.out.drain(r)
}

// handshake returns the error of its handshake, nil if there was none so far.
func (p *process) handshake() *StartError {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bad
}

// checkHandshake finds what is wrong with the first line on stdout; see package wire. A plugin that
// ended without any is no matter of the line.
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
