package pluginproc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"golang.org/x/time/rate"
)

// log passes lines to the host, one at a time, until it is closed.
type log struct {
	mu    sync.Mutex
	onLog func(source, line string) // nil without a listener, and after close
}

func (l *log) line(source, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.onLog != nil {
		l.onLog(source, line)
	}
}

func (l *log) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onLog = nil
}

// output passes on the lines of the plugin's stdout or stderr. It always reads all, so the plugin never blocks on a
// full pipe. Lines beyond LogRate and bytes beyond MaxLine are dropped.
type output struct {
	source  string
	onLog   func(source, line string)
	limiter *rate.Limiter
	tail    *tail // nil for stdout
	dropped int   // lines dropped since the last line that was passed on
	line    []byte
	cut     int // bytes of the current line that were dropped
}

func newOutput(source string, onLog func(source, line string), t *tail) *output {
	return &output{source: source, onLog: onLog, tail: t, limiter: rate.NewLimiter(LogRate, LogRate)}
}

// Write takes part of the output; it never fails.
func (o *output) Write(p []byte) (int, error) {
	n := len(p)
	if o.tail != nil {
		o.tail.write(p)
	}
	for {
		line, rest, found := bytes.Cut(p, []byte{'\n'})
		room := min(len(line), MaxLine-len(o.line))
		o.line = append(o.line, line[:room]...)
		o.cut += len(line) - room
		if !found {
			return n, nil
		}
		o.flush()
		p = rest
	}
}

// flush passes on the current line, or drops it beyond LogRate.
func (o *output) flush() {
	line, cut := o.line, o.cut
	o.line, o.cut = o.line[:0], 0
	if !o.limiter.Allow() {
		o.dropped++
		return
	}
	o.reportDropped()
	text := strings.ToValidUTF8(strings.TrimSuffix(string(line), "\r"), "\uFFFD")
	if cut > 0 {
		text += fmt.Sprintf(" … %d bytes more", cut)
	}
	o.onLog(o.source, text)
}

func (o *output) reportDropped() {
	if o.dropped > 0 {
		o.onLog(o.source, fmt.Sprintf("… %d lines were not taken: more than %d a second", o.dropped, LogRate))
		o.dropped = 0
	}
}

// copyFrom reads r to its end.
func (o *output) copyFrom(r io.Reader) {
	_, _ = io.Copy(o, r) // an error ends it as the end of the pipe does
	if len(o.line) > 0 {
		o.flush()
	}
	o.reportDropped()
}

// errNoLine is returned for a first line that does not end within handshakeMax bytes.
var errNoLine = errors.New("no line")

// firstLine reads up to the first line's end.
func firstLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadSlice('\n') // bounded by the reader's buffer
	if errors.Is(err, bufio.ErrBufferFull) {
		err = errNoLine
	}
	return strings.TrimRight(string(line), "\r\n"), err
}

// tail keeps the last CrashReport bytes of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) write(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(p) >= CrashReport {
		t.buf = append(t.buf[:0], p[len(p)-CrashReport:]...)
		return
	}
	if over := len(t.buf) + len(p) - 2*CrashReport; over > 0 {
		// The buffer may grow to twice the size, so that bytes are seldom moved.
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-CrashReport:]...)
	}
	t.buf = append(t.buf, p...)
}

// last returns the last n lines, or all that is kept if n is 0.
func (t *tail) last(n int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.buf[max(0, len(t.buf)-CrashReport):]
	text := strings.ToValidUTF8(strings.TrimRight(string(b), "\n"), "\uFFFD")
	if n == 0 {
		return text
	}
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
