package filecsv

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
)

// The limits that keep one bad file from taking the machine's memory.
const (
	maxField   = 1 << 20 // bytes
	maxRecord  = 8 << 20 // bytes
	maxColumns = 10_000
)

// records cuts UTF-8 text into records and fields. It is here because encoding/csv has no
// limits (an open quote takes the rest of the file into memory), reports an open quote where
// the file ends instead of where the quote is, knows no CR-only files and cannot go on after a
// malformed row. It accepts what encoding/csv accepts without LazyQuotes and gives the same
// fields, except that a CRLF inside quotes stays as it is; FuzzCSV compares the two.
//
// Lines are found with bytes.IndexByte. A line without quotes, the usual case, is cut at its
// delimiters where it lies in the buffer; nothing is copied.
type records struct {
	src   io.Reader
	delim byte
	quote byte // 0: quotes mean nothing (text never holds NUL)
	eol   byte // '\n', or '\r' in files that know no other; a '\r' before '\n' belongs to the end

	buf      []byte
	pos, end int   // what is not yet used is buf[pos:end]
	checked  int   // what is known to be UTF-8 ends here
	offset   int64 // of buf[0] in the text
	srcErr   error // of src, io.EOF included; reported once the bytes before it are used

	line    int64    // where the next record starts, from 1
	start   int64    // where the last one did
	fields  [][]byte // of the last one; valid until the next call
	doubled []int    // fields with doubled quotes
}

// malformed is a record that breaks the rules of quoting. Reading goes on after it.
type malformed struct {
	line   int64 // of the offending character
	field  int   // number of the field, from 0
	reason string
	raw    []byte // the lines that were left out; valid until the next call
}

func (m *malformed) Error() string { return fmt.Sprintf("line %d: %s", m.line, m.reason) }

// newRecords reads from src, whose first byte is at offset of the file.
func newRecords(src io.Reader, offset int) *records {
	return &records{src: src, delim: ',', quote: '"', eol: '\n', line: 1, offset: int64(offset), buf: make([]byte, 64<<10)}
}

// errShort says that the buffer ends before the record does.
var errShort = errors.New("more text is needed")

// next reads a record into fields. Blank lines are passed over. The error is io.EOF after the
// last record, a *malformed after which reading may go on, or the end of it.
func (r *records) next() error {
	for {
		err := r.record()
		if err != errShort {
			return err
		}
		r.more()
	}
}

// record is next on what the buffer holds. It changes nothing when it returns errShort.
func (r *records) record() error {
	for {
		w := r.buf[r.pos:r.end]
		end, err := r.lineEnd(w, 0)
		if err != nil {
			return err
		}
		if len(w) == 0 {
			return io.EOF
		}
		r.start = r.line
		line := r.trimEnd(w[:end])
		if r.quote != 0 && bytes.IndexByte(line, r.quote) >= 0 {
			return r.quoted(w, end)
		}
		r.skipTo(end)
		if len(line) > 0 {
			return r.split(line)
		}
	}
}

// lineEnd returns where the line goes to that o lies in: to a line end, or to the end of w if
// that is the end of the text or too long for a record.
func (r *records) lineEnd(w []byte, o int) (int, error) {
	if n := bytes.IndexByte(w[o:], r.eol); n >= 0 {
		return o + n, nil
	}
	return len(w), r.ifShort(w)
}

// ifShort returns nil if there is no text after w that could still be looked at.
func (r *records) ifShort(w []byte) error {
	switch {
	case r.srcErr == nil && len(w) <= maxRecord:
		return errShort
	case r.srcErr == io.EOF:
		return nil
	}
	return r.srcErr
}

// skipTo goes on behind the line end, or the end of the text, at o.
func (r *records) skipTo(o int) {
	r.pos += o
	if r.pos < r.end {
		r.pos++
		r.line++
	}
}

// trimEnd takes off the CR of a CRLF.
func (r *records) trimEnd(line []byte) []byte {
	if n := len(line); n > 0 && r.eol == '\n' && line[n-1] == '\r' {
		return line[:n-1]
	}
	return line
}

// split cuts a line without quotes.
func (r *records) split(line []byte) error {
	rest, long := line, len(line) > maxField
	r.fields = r.fields[:0]
	for {
		n := bytes.IndexByte(rest, r.delim)
		f := rest
		if n >= 0 {
			f = rest[:n]
		}
		if long && len(f) > maxField {
			return r.fieldTooLong(r.start)
		}
		if len(r.fields) == maxColumns {
			return r.tooManyColumns()
		}
		r.fields = append(r.fields, f)
		if n < 0 {
			break
		}
		rest = rest[n+1:]
	}
	if len(line) > maxRecord {
		return r.recordTooLong()
	}
	return nil
}

// quoted reads the record at the start of w. It has a quote in its first line, which goes to
// end, and may take further lines. stop is the next quote of the line, or else its end.
func (r *records) quoted(w []byte, end int) error {
	r.fields, r.doubled = r.fields[:0], r.doubled[:0]
	stop := r.stop(w, 0, end)
	for o := 0; ; {
		if len(r.fields) == maxColumns {
			return r.tooManyColumns()
		}
		if o < stop || stop == end {
			n := bytes.IndexByte(w[o:stop], r.delim)
			if n < 0 && stop < end {
				return r.badQuote(w, o, stop)
			}
			f := r.trimEnd(w[o:stop])
			if n >= 0 {
				f = w[o : o+n]
			}
			if len(f) > maxField {
				return r.fieldTooLong(r.lineAt(w, o))
			}
			r.fields = append(r.fields, f)
			if n < 0 {
				return r.finish(w, end)
			}
			o += n + 1
			continue
		}
		to, err := r.closing(w, o)
		if err != nil {
			return err
		}
		if to > end {
			if end, err = r.lineEnd(w, to); err != nil {
				return err
			}
		}
		stop = r.stop(w, to+1, end)
		after := w[to+1 : stop]
		last := stop == end && len(r.trimEnd(after)) == 0
		if !last && (len(after) == 0 || after[0] != r.delim) {
			return r.badQuote(w, o, to)
		}
		r.fields = append(r.fields, w[o+1:to])
		if last {
			return r.finish(w, end)
		}
		o = to + 2
	}
}

// stop returns the next quote from o on, or else the end of the line.
func (r *records) stop(w []byte, o, end int) int {
	if n := bytes.IndexByte(w[o:end], r.quote); n >= 0 {
		return o + n
	}
	return end
}

// closing finds the quote that ends the field whose quote opens at o.
func (r *records) closing(w []byte, o int) (int, error) {
	doubled := false
	for i := o + 1; i-o-1 <= maxField; {
		n := bytes.IndexByte(w[i:], r.quote)
		if n < 0 && len(w)-o-1 > maxField {
			break
		}
		if n < 0 || i+n+1 == len(w) {
			if err := r.ifShort(w); err != nil {
				return 0, err
			}
		}
		if n < 0 {
			break
		}
		i += n
		if i+1 < len(w) && w[i+1] == r.quote {
			doubled = true
			i += 2
			continue
		}
		if i-o-1 > maxField {
			break
		}
		if doubled {
			r.doubled = append(r.doubled, len(r.fields))
		}
		return i, nil
	}
	return 0, r.notClosed(w, o)
}

// finish ends a record at o.
func (r *records) finish(w []byte, o int) error {
	if o > maxRecord {
		return r.recordTooLong()
	}
	r.line = r.lineAt(w, o)
	r.skipTo(o)
	for _, i := range r.doubled {
		r.fields[i] = r.undouble(r.fields[i])
	}
	return nil
}

// undouble turns doubled quotes into single ones, in place.
func (r *records) undouble(f []byte) []byte {
	to := 0
	for from := 0; ; {
		n := bytes.IndexByte(f[from:], r.quote)
		if n < 0 {
			return f[:to+copy(f[to:], f[from:])]
		}
		to += copy(f[to:], f[from:from+n+1])
		from += n + 2
	}
}

// badQuote leaves out the record whose field at o has a quote at q that does not belong there.
// Reading goes on behind the line on which that field starts: if its opening quote was the
// mistake, the lines that it took in are records of their own.
func (r *records) badQuote(w []byte, o, q int) error {
	end, err := r.lineEnd(w, o)
	if err != nil {
		return err
	}
	if end > maxRecord {
		return r.recordTooLong()
	}
	m := &malformed{line: r.lineAt(w, o), field: len(r.fields), raw: r.trimEnd(w[:end])}
	switch at := r.lineAt(w, q); {
	case w[o] != r.quote:
		m.reason = fmt.Sprintf("bare quote at character %d of the line", r.charAt(w, q))
	case at == m.line:
		m.reason = fmt.Sprintf("text after the closing quote at character %d of the line", r.charAt(w, q))
	default:
		m.reason = fmt.Sprintf("the quote opened at character %d of the line is closed by one in the middle of line %d", r.charAt(w, o), at)
	}
	r.line = m.line
	r.skipTo(end)
	return m
}

// notClosed is for a quote at o that is open where the text or the longest field ends.
func (r *records) notClosed(w []byte, o int) error {
	line, char := r.lineAt(w, o), r.charAt(w, o)
	open := w[o+1:]
	if len(open) <= maxField {
		return refuse("unterminated_quote", "line %d: the quote opened at character %d is never closed", line, char)
	}
	if bytes.IndexByte(open[:maxField], r.eol) < 0 {
		return r.fieldTooLong(line)
	}
	return refuse("unterminated_quote", "line %d: the quote opened at character %d is not closed within %s, the longest field allowed",
		line, char, humanize.IBytes(maxField))
}

// lineAt returns the line of offset o of the record at the start of w.
func (r *records) lineAt(w []byte, o int) int64 {
	return r.start + int64(bytes.Count(w[:o], []byte{r.eol}))
}

// charAt returns the number of the character at offset o within its line, from 1.
func (r *records) charAt(w []byte, o int) int {
	return 1 + utf8.RuneCount(w[bytes.LastIndexByte(w[:o], r.eol)+1:o])
}

func (r *records) fieldTooLong(line int64) error {
	return refuse("field_too_long", "line %d: a field is longer than %s", line, humanize.IBytes(maxField))
}

func (r *records) recordTooLong() error {
	return refuse("record_too_long", "line %d: a record is longer than %s", r.start, humanize.IBytes(maxRecord))
}

func (r *records) tooManyColumns() error {
	return refuse("too_many_columns", "line %d: more than %s columns", r.start, humanize.Comma(maxColumns))
}

// more reads on until the buffer is full or the text ends; false if there was nothing left, or
// nothing that is text. A full buffer is doubled, so that a long record is looked through a
// few times only.
func (r *records) more() bool {
	if r.srcErr != nil {
		return false
	}
	r.offset += int64(r.pos)
	r.checked -= r.pos
	r.end = copy(r.buf, r.buf[r.pos:r.end])
	r.pos = 0
	if r.end == len(r.buf) {
		r.buf = append(r.buf, make([]byte, len(r.buf))...)
	}
	old := r.end
	n, err := io.ReadFull(r.src, r.buf[r.end:])
	if err == io.ErrUnexpectedEOF {
		err = io.EOF
	}
	r.end += n
	r.srcErr = err
	unchecked := r.buf[r.checked:r.end]
	bad, looked := firstBad(unchecked, err == io.EOF)
	if bad >= 0 {
		r.srcErr = notText(unchecked, bad, r.offset+int64(r.checked))
		r.end = r.checked + bad
	}
	r.checked += looked
	return r.end > old
}
