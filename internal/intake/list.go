package intake

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"

	"github.com/ledgerd/ledgerd/ledger/bounds"
)

// maxLine is the longest line of a list or of a JSONL file, in bytes: the largest payload and 64 KiB.
const maxLine = bounds.MaxPayload + 64<<10

var errLong = fmt.Errorf("longer than %d bytes", maxLine)

// open opens a file by name, "-" for stdin, as UTF-8. It converts by a byte order mark and removes it.
func (s *Source) open(name string) (io.Reader, func(), error) {
	decode := unicode.BOMOverride(encoding.Nop.NewDecoder())
	if name == Stdin {
		return transform.NewReader(s.Stdin, decode), func() {}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, unusable(name, err)
	}
	return transform.NewReader(f, decode), func() { f.Close() }, nil
}

// lines calls each for every line of a file. For a line that is too long, err is errLong and text is empty. lines
// returns false if a call returned false, or the file cannot be read.
func (r *reader) lines(name string, each func(line int, text string, err error) bool) bool {
	in, done, err := r.open(name)
	if err != nil {
		return r.fatal(err)
	}
	defer done()
	br := bufio.NewReaderSize(in, 64<<10)
	for n := 1; ; n++ {
		if err := r.ctx.Err(); err != nil {
			return r.fatal(err)
		}
		text, err := readLine(br)
		if errors.Is(err, io.EOF) && (text == "" || r.Unended != nil && r.Unended()) {
			return true
		}
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, errLong) {
			return r.fatal(&ArgError{Input: name, Reason: cause(err), Err: err})
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		if !each(n, text, err) {
			return false
		}
	}
}

// readLine reads to the end of a line and keeps at most maxLine bytes of it.
func readLine(br *bufio.Reader) (string, error) {
	var line []byte
	long := false
	for {
		part, err := br.ReadSlice('\n')
		if long = long || len(line)+len(part) > maxLine; !long {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case long && (err == nil || errors.Is(err, io.EOF)):
			return "", errLong
		}
		return strings.TrimRight(string(line), "\r\n"), err
	}
}

// list reads one INPUT per line; it ignores blank lines and those that begin with #.
func (r *reader) list(name string) bool {
	return r.lines(name, func(n int, text string, err error) bool {
		o := origin{name, n}
		if err != nil {
			return r.bad(o, err)
		}
		if text = trim(text); text == "" || text[0] == '#' {
			return true
		}
		return r.input(text, o)
	})
}

func trim(text string) string { return strings.TrimSpace(text) }
