package exec

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"strings"

	"github.com/ledgerd/ledgerd/internal/lazyregexp"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

const (
	maxResult = 64 << 10 // bytes
	maxLogged = 4 << 10  // bytes of a line that goes into the log
)

// progress is a line with the progress of the command.
var progress = lazyregexp.New(`^progress ([0-9]{1,18})(?:/([0-9]{1,18}))?(?: (\S{1,32}))?$`)

// lines splits the output of a command into lines. If a line is longer than maxResult, take gets this many bytes of it,
// and cut is true. A carriage return ends a line, too: programs draw over their lines with it.
type lines struct {
	take func(line []byte, cut bool)
	line []byte // the line that has begun
	cut  bool   // bytes of it were dropped
}

// Write never fails.
func (l *lines) Write(chunk []byte) (int, error) {
	n := len(chunk)
	for len(chunk) > 0 {
		part, rest, ended := chunk, []byte(nil), false
		if i := bytes.IndexAny(chunk, "\r\n"); i >= 0 {
			part, rest, ended = chunk[:i], chunk[i+1:], true
		}
		room := min(len(part), maxResult-len(l.line))
		l.line, l.cut = append(l.line, part[:room]...), l.cut || room < len(part)
		if ended {
			l.end()
		}
		chunk = rest
	}
	return n, nil
}

// end hands on the line that was begun.
func (l *lines) end() {
	l.take(l.line, l.cut)
	l.line, l.cut = l.line[:0], false
}

// read reads to the end.
func (l *lines) read(from io.Reader) {
	_, _ = io.Copy(l, from) // its error is the end, or that we have closed it
	l.end()
}

// take hands on a line that is neither blank nor progress.
func (r *run) take(line []byte, cut bool, take func([]byte, bool)) {
	if line = bytes.TrimSpace(line); len(line) == 0 {
		return
	}
	if bytes.HasPrefix(line, []byte("progress ")) {
		if m := progress().FindSubmatch(line); m != nil {
			done, _ := strconv.ParseInt(string(m[1]), 10, 64) // the pattern guarantees that it fits
			total, _ := strconv.ParseInt("0"+string(m[2]), 10, 64)
			r.item.Progress(done, total, string(m[3]))
			return
		}
	}
	take(line, cut)
}

// logged writes a line of stderr into the item's log.
func (r *run) logged(line []byte, _ bool) {
	r.last = r.cfg.logLine(line)
	r.item.Log.Info(r.last)
}

// logLine returns a line for a log: without secrets, and cut if it is long.
func (c *Config) logLine(line []byte) string {
	text := c.secrets.Hide(string(line)) // before the cut: that could leave a part of a secret
	return strings.ToValidUTF8(text[:min(len(text), maxLogged)], "\uFFFD")
}

// result collects the lines of stdout.
type result struct {
	whole []byte // all lines, up to maxResult bytes
	much  bool   // there were more lines
	last  []byte // the last line
	cut   bool   // bytes of last were dropped
}

func (o *result) line(line []byte, cut bool) {
	o.last, o.cut = append(o.last[:0], line...), cut
	if o.much = o.much || len(o.whole)+len(line) >= maxResult; !o.much {
		o.whole = append(append(o.whole, line...), '\n')
	}
}

// json is the result: all lines if they are JSON, else the last line. Secrets are hidden.
func (o *result) json(secrets *redact.Secrets) (json.RawMessage, error) {
	hidden := func(raw []byte) []byte { return bytes.ToValidUTF8(secrets.JSON(raw), []byte("\uFFFD")) }
	switch {
	case !o.much && json.Valid(o.whole):
		return hidden(o.whole), nil
	case o.cut:
		return nil, refuse("output", "the result has more than %d bytes; write it to a file and say its name", maxResult)
	case len(o.last) == 0:
		return nil, nil
	case json.Valid(o.last):
		return hidden(o.last), nil
	}
	return json.Marshal(strings.ToValidUTF8(secrets.Hide(string(o.last)), "\uFFFD"))
}
