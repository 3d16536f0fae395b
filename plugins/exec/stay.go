package exec

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/ledgerd/ledgerd/plugins/exec/group"
	"github.com/ledgerd/ledgerd/sdk"
)

// process is a running command that stays: it reads items from stdin, one after the other, and writes one answer for
// each to stdout.
type process struct {
	cfg          *Config
	cmd          *osexec.Cmd
	pipes        *pipes
	stderrSource *source
	stop         context.CancelFunc
	worked       bool        // it has answered for an item
	hint         *time.Timer // writes a hint if the first answer takes longer than silentTime

	ended chan struct{} // closed after the end of the process; then these are known:
	end   ending
	err   error // why it could not be started
	left  int   // bytes of stdin that it has not read

	mu      sync.Mutex
	run     *run  // the item at work, until its answer
	fault   error // of a line that is no answer; further lines are ignored
	answers chan answer
}

// start starts a process for an item. If the system cannot start it, the returned process has ended, with err set.
func (c *Config) start(r *run) (*process, error) {
	tmp, err := c.keeper.Temporary()
	if err != nil {
		return nil, err
	}
	argv := make([]string, len(c.argv))
	for i, t := range c.argv {
		argv[i] = t.text[0] // Validate has refused placeholders
	}
	p := &process{cfg: c, cmd: c.cmd(argv, tmp), run: r, ended: make(chan struct{}), answers: make(chan answer, 1)}
	if p.pipes, err = connect(p.cmd); err != nil {
		return nil, errors.Join(err, group.RemoveAll(tmp))
	}
	p.stderrSource = &source{lines: lines{take: p.stderr}, buf: make([]byte, maxResult)}
	if p.stderrSource.pipe, err = p.pipes.stderr.(syscall.Conn).SyscallConn(); err != nil { // it is an *os.File
		return nil, errors.Join(err, group.RemoveAll(tmp))
	}
	out := lines{take: p.stdout}
	p.pipes.talks.Go(func() {
		_, _ = io.Copy(&out, p.pipes.stdout)
		if json.Valid(out.line) { // else it has ended in the middle of a line, and the way it ended explains more
			out.end()
		}
	})
	p.pipes.talks.Go(p.stderrSource.read)
	p.hint = time.AfterFunc(silentTime, func() {
		p.note(fmt.Sprintf("no answer for %s since the process was started: does it start slowly, or not flush what it prints? "+
			"A timeout of the kind ends the wait; of plugin run, --timeout 1m or Ctrl-C", silentTime))
	})
	begun := make(chan struct{})
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	c.processes.all.Go(func() {
		defer close(p.ended)
		state, stopped, err := c.keeper.Run(ctx, p.cmd, c.Grace, func() { close(begun) })
		p.hint.Stop()
		p.stop()
		p.left = p.pipes.unread()
		p.pipes.finish()
		if err != nil {
			p.err = startError(p.cmd, err)
		} else {
			p.end = endingOf(state, stopped)
		}
		if err := group.RemoveAll(tmp); err != nil {
			p.note("the folder for temporary files is not removed: " + err.Error())
		}
	})
	select { // without this wait, processes that it starts for the item could outlive a plugin that is killed
	case <-begun:
	case <-p.ended:
	}
	return p, nil
}

// stay works an item by a command that stays.
func stay(ctx context.Context, cfg *Config, it sdk.Item[In]) (json.RawMessage, error) {
	r := &run{cfg: cfg, item: it}
	trace := propagation.MapCarrier{} // empty if the item is not traced
	propagation.TraceContext{}.Inject(ctx, trace)
	line, err := r.itemLine(trace)
	if err != nil {
		return nil, err
	}
	for {
		p, err := cfg.processes.take(cfg, r)
		if err != nil {
			return nil, sdk.Code("start", err)
		}
		if out, err := p.work(ctx, r, line); !errors.Is(err, errNotBegun) {
			return out, err
		}
	}
}

// errNotBegun means that a process ended before it read the item.
var errNotBegun = errors.New("not begun")

// work sends an item to the process and waits for the answer. After a line that is no answer, or if the item is to end,
// it returns when the process and its group have ended.
func (p *process) work(ctx context.Context, r *run, line []byte) (json.RawMessage, error) {
	stopWatching := context.AfterFunc(ctx, p.stop) // returns true if ctx had not ended
	sent, _ := p.pipes.stdin.Write(line)           // if it fails the process has ended, or is about to
	var a answer
	answered := true
	select {
	case a = <-p.answers:
		if stopWatching() && a.fault == nil {
			p.worked = true
			p.hint.Stop()
			p.cfg.processes.put(p)
			return a.outcome(r)
		}
		<-p.ended
	case <-p.ended:
		stopWatching()
		select {
		case a = <-p.answers: // it answered just before its end
		default:
			answered = false
		}
	}
	switch {
	case answered && a.fault != nil:
		return nil, sdk.Code("answer", fmt.Errorf("%w%s", a.fault, r.lastWords()))
	case answered:
		return a.outcome(r)
	case p.err != nil:
		return nil, p.err
	case p.worked && !p.end.stopped && p.left == sent:
		return nil, errNotBegun
	}
	p.end.text += " before it answered"
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) && !p.worked && r.last == "" {
		r.last = "the process has answered nothing so far; does it flush what it prints?"
	}
	return r.judge(ctx, p.end)
}

// begin gives the process an item, and reports false if the process has ended or will end after a fault.
func (p *process) begin(r *run) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.ended:
		return false
	default:
	}
	if p.fault != nil {
		return false
	}
	p.run = r
	return true
}

// stdout handles a line of the process's stdout.
func (p *process) stdout(line []byte, cut bool) {
	p.stderrSource.catchUp() // lines on stderr are older than this answer, so they belong to the same item
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hear(line, cut, func(line []byte, cut bool) {
		if p.fault != nil {
			return
		}
		a := readAnswer(string(line), cut, p.run, p.cfg.secrets)
		if p.fault = a.fault; p.fault != nil {
			p.stop()
		}
		switch {
		case p.run != nil:
			p.answers <- a
		case p.fault != nil:
			p.note(p.fault.Error())
		}
		if p.fault == nil {
			p.run = nil
		}
	})
}

// stderr handles a line of the process's stderr.
func (p *process) stderr(line []byte, cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hear(line, cut, func(line []byte, cut bool) {
		if p.run != nil {
			p.run.logged(line, cut)
		} else {
			p.note(p.cfg.logLine(line))
		}
	})
}

// hear calls take with a line that is neither blank nor progress. Progress without an item is ignored.
func (p *process) hear(line []byte, cut bool, take func([]byte, bool)) {
	if r := p.run; r != nil {
		r.take(line, cut, take)
	} else if line = bytes.TrimSpace(line); len(line) > 0 && !progress().Match(line) {
		take(line, cut)
	}
}

// note writes a text that belongs to no item to stderr, and so into ledgerd's log.
func (p *process) note(text string) {
	fmt.Fprintf(os.Stderr, "%s: %s\n", p.cmd.Args[0], strings.ToValidUTF8(text, "\uFFFD"))
}

// processes are the processes of a command that stays. There are as many as items were worked at a time.
type processes struct {
	mu     sync.Mutex
	idle   []*process // without an item; the one that was used last is at the end
	closed bool
	all    sync.WaitGroup // running processes
}

// take returns a process for an item: the idle one that was used last, or a new one.
func (l *processes) take(cfg *Config, r *run) (*process, error) {
	for {
		l.mu.Lock()
		n := len(l.idle) - 1
		if n < 0 {
			l.mu.Unlock()
			return cfg.start(r)
		}
		p := l.idle[n]
		l.idle = l.idle[:n]
		l.mu.Unlock()
		if p.begin(r) {
			return p, nil
		}
	}
}

// put keeps a process for the next item.
func (l *processes) put(p *process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = append(l.idle, p)
	if l.closed {
		_ = p.pipes.stdin.Close()
	}
}

// silentTime is how long a new process may give no answer before a hint is logged. A program that was not written to
// stay waits for the end of its stdin, and that does not come.
const silentTime = 10 * time.Second

// closeTime is how long close waits after it has closed stdin, and again after SIGTERM: one second in all. ledgerd
// kills the plugin after two.
const closeTime = 500 * time.Millisecond

// close asks the processes to end. The keeper kills those that do not.
func (l *processes) close() {
	l.mu.Lock()
	l.closed = true
	idle := slices.Clone(l.idle)
	l.mu.Unlock()
	for _, p := range idle {
		_ = p.pipes.stdin.Close()
	}
	ended := make(chan struct{})
	go func() {
		l.all.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return
	case <-time.After(closeTime):
	}
	for _, p := range idle {
		p.stop()
	}
	select {
	case <-ended:
	case <-time.After(closeTime):
	}
}

// source reads a pipe. Besides, catchUp reads at once what is in the pipe, and returns when all lines before are handed
// on: os.File.Read could have read bytes that it has not returned yet.
type source struct {
	pipe syscall.RawConn

	mu    sync.Mutex // held from before a read until its lines are handed on
	lines lines
	buf   []byte
}

// read reads to the end.
func (s *source) read() {
	var err error
	for err == nil {
		failed := s.pipe.Read(func(fd uintptr) bool { // called when there are bytes, until it returns true
			err = s.chunk(fd)
			return !errors.Is(err, syscall.EAGAIN)
		})
		if failed != nil {
			err = failed // closed by us
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines.end()
}

// catchUp reads the bytes in the pipe, at most twice the buffer: a process may never stop writing.
func (s *source) catchUp() {
	_ = s.pipe.Control(func(fd uintptr) { // it fails if the pipe is closed
		for range 2 {
			if s.chunk(fd) != nil {
				return
			}
		}
	})
}

func (s *source) chunk(fd uintptr) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := syscall.Read(descriptor(fd), s.buf)
	switch {
	case errors.Is(err, syscall.EINTR):
		return nil
	case err != nil:
		return err
	case n == 0:
		return io.EOF
	}
	_, _ = s.lines.Write(s.buf[:n])
	return nil
}
