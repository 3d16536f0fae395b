package exec

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/ledgerd/ledgerd/sdk"
)

// run is one attempt.
type run struct {
	cfg  *Config
	item sdk.Item[In]
	tmp  string // {tmp}, the folder of the attempt
	out  result
	last string // the last line on stderr
}

// ending is how a command ended.
type ending struct {
	code       int    // the exit code; -1 for a signal
	name, text string // the code of the attempt, such as exit_2; words for people
	stopped    bool   // it was told to end
}

func endingOf(state *os.ProcessState, stopped bool) ending {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		n := status.Signal()
		return ending{-1, fmt.Sprintf("signal_%d", int(n)), fmt.Sprintf("ended by signal %d (%v)", int(n), n), stopped}
	}
	code := state.ExitCode()
	return ending{code, fmt.Sprintf("exit_%d", code), fmt.Sprintf("exited with %d", code), stopped}
}

// command runs the command until it, and all that it has started, has ended.
func (r *run) command(ctx context.Context) (ending, error) {
	trace := propagation.MapCarrier{} // empty if the item is not traced
	propagation.TraceContext{}.Inject(ctx, trace)
	cmd, err := r.prepare(trace)
	if err != nil {
		return ending{}, err
	}
	line, err := r.itemLine(trace)
	if err != nil {
		return ending{}, err
	}
	pipes, err := connect(cmd)
	if err != nil {
		return ending{}, sdk.Code("start", err)
	}
	pipes.talk(r, line)
	state, stopped, err := r.cfg.keeper.Run(ctx, cmd, r.cfg.Grace, nil)
	pipes.finish()
	if err != nil {
		return ending{}, startError(cmd, err)
	}
	return endingOf(state, stopped), nil
}

// startError decides whether another attempt can start the command, and names frequent causes.
func startError(cmd *osexec.Cmd, err error) error {
	path := cmd.Path
	if !filepath.IsAbs(path) {
		path = filepath.Join(cmd.Dir, path)
	}
	switch {
	case errors.Is(err, syscall.E2BIG):
		return refuse("argument", "the arguments are too long for the system: %w", err)
	case errors.Is(err, syscall.ENOEXEC):
		err = fmt.Errorf("%w: no program for this machine, or a script without a first line such as #!/bin/sh", err)
	case errors.Is(err, fs.ErrNotExist) && exists(path) && (cmd.Dir == "" || exists(cmd.Dir)):
		err = fmt.Errorf("%w: the file is there, but not the program that its first line names; does that line end with a "+
			"carriage return?", err)
	}
	return sdk.Code("start", err)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// prepare makes the command of the item.
func (r *run) prepare(trace propagation.MapCarrier) (*osexec.Cmd, error) {
	argv := make([]string, len(r.cfg.argv))
	for i, t := range r.cfg.argv {
		var err error
		if argv[i], err = t.fill(r.value); err != nil {
			return nil, err
		}
	}
	it := r.item
	cmd := r.cfg.cmd(argv, r.tmp)
	cmd.Env = append(cmd.Env,
		"LEDGERD_ITEM="+strconv.FormatInt(it.ID, 10),
		"LEDGERD_ATTEMPT="+strconv.FormatInt(it.Attempt, 10),
		"LEDGERD_KIND="+it.Kind,
		"LEDGERD_SCOPE="+it.Scope,
		"LEDGERD_KEY="+it.Key,
		"LEDGERD_IDEMPOTENCY_KEY="+it.IdempotencyKey)
	for name, value := range trace {
		cmd.Env = append(cmd.Env, strings.ToUpper(name)+"="+value)
	}
	return cmd, nil
}

// cmd makes a command, with the folder and environment that are the same for all items.
func (c *Config) cmd(argv []string, tmp string) *osexec.Cmd {
	cmd := osexec.Command(argv[0], argv[1:]...)
	cmd.Dir = c.Dir
	cmd.Env = append(slices.Clip(c.env), "TMPDIR="+tmp)
	return cmd
}

// itemLine is the line of JSON that the command reads about its item.
func (r *run) itemLine(trace propagation.MapCarrier) ([]byte, error) {
	it := r.item
	var line bytes.Buffer
	lines := json.NewEncoder(&line)
	lines.SetEscapeHTML(false) // shell scripts find a URL as it is
	err := lines.Encode(struct {
		ID             int64  `json:"id"` // shell scripts rely on it to be the first
		Kind           string `json:"kind"`
		Scope          string `json:"scope"`
		Key            string `json:"key"`
		Attempt        int64  `json:"attempt"`
		IdempotencyKey string `json:"idempotency_key"`
		Payload        In     `json:"payload"`
		Traceparent    string `json:"traceparent,omitempty"`
		Tracestate     string `json:"tracestate,omitempty"`
	}{it.ID, it.Kind, it.Scope, it.Key, it.Attempt, it.IdempotencyKey, it.Payload, trace["traceparent"],
		trace["tracestate"]})
	return line.Bytes(), err
}

// pipes are our ends of a command's stdin, stdout and stderr.
type pipes struct {
	stdin          io.WriteCloser
	stdout, stderr io.ReadCloser
	talks          sync.WaitGroup
}

func connect(cmd *osexec.Cmd) (*pipes, error) {
	var p pipes
	var err1, err2, err3 error
	p.stdin, err1 = cmd.StdinPipe()
	p.stdout, err2 = cmd.StdoutPipe()
	p.stderr, err3 = cmd.StderrPipe()
	return &p, errors.Join(err1, err2, err3)
}

// talk begins to send the command its item and to read its output.
func (p *pipes) talk(r *run, line []byte) {
	p.talks.Go(func() {
		_, _ = p.stdin.Write(line) // it need not read
		_ = p.stdin.Close()
	})
	out := lines{take: func(line []byte, cut bool) { r.take(line, cut, r.out.line) }}
	err := lines{take: func(line []byte, cut bool) { r.take(line, cut, r.logged) }}
	p.talks.Go(func() { out.read(p.stdout) })
	p.talks.Go(func() { err.read(p.stderr) })
}

// outputTime is how long output is read after the end of a command: a process that has left the
// group may hold the pipes open for ever.
const outputTime = time.Second

// finish reads the rest of the output, for outputTime at most, and closes the pipes.
func (p *pipes) finish() {
	_ = p.stdin.Close()
	late := time.AfterFunc(outputTime, p.close)
	p.talks.Wait()
	late.Stop()
	p.close()
}

// unread is how many bytes of its stdin the command has not read.
func (p *pipes) unread() (n int) {
	if stdin, ok := p.stdin.(syscall.Conn); ok { // it is an *os.File
		if raw, err := stdin.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { n = unread(fd) }) // it fails if the pipe is closed
		}
	}
	return n
}

func (p *pipes) close() {
	for _, end := range []io.Closer{p.stdin, p.stdout, p.stderr} {
		_ = end.Close() // twice is an error, too
	}
}
