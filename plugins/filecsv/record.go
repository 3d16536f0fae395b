package filecsv

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
)

// These limits keep one bad file from taking all memory. The limit of a field is a setting.
const (
	fieldsPerRecord = 8 // longest fields that a record has room for
	maxColumns      = 10_000
)

// records splits UTF-8 text into records and fields. encoding/csv is not enough: it has no limits (after an open
// quote it reads the rest of the file into memory), it reports an open quote at the end of the file instead of at the
// quote, it does not read files with CR only, and it cannot continue after a malformed row. records accepts what
// encoding/csv accepts without LazyQuotes and gives the same fields, except that a CRLF inside quotes stays as it is;
// FuzzCSV compares the two. Blanks between a delimiter and a quote do not count, since nothing else could be meant.
//
// bytes.IndexByte finds the lines. A line without quotes, the usual case, is split at its delimiters inside the
// buffer, without a copy.
type records struct {
	dialect
	src      io.Reader
	encoding encodingOf // of the file; the text here is UTF-8
	maxField int        // bytes

	buf      []byte
	pos, end int   // unread bytes are buf[pos:end]
	checked  int   // the bytes before this are UTF-8
	offset   int64 // of buf[0] in the text
	srcErr   error // of src, io.EOF included; reported once the bytes before it are used

	nextLine   int64    // the line where the next record starts, from 1
	recordLine int64    // the line where the last record started
	fields     [][]byte // of the last record; valid until the next call
	quotes     []int    // fields with doubled or escaped quotes
}

// malformed is a record that breaks the rules of quoting. Reading goes on after it.
type malformed struct {
	line   int64 // of the offending character
	field  int   // number of the field, from 0
	reason string
	raw    []byte // the skipped lines; valid until the next call
}

func (m *malformed) Error() string { return fmt.Sprintf("line %d: %s", m.line, m.reason) }

// newRecords reads from src. The first byte of src is at this offset of the file.
func newRecords(src io.Reader, offset int) *records {
	return &records{src: src, dialect: dialect{delim: ',', quote: '"', eol: '\n'}, maxField: 1 << 20, nextLine: 1,
		offset: int64(offset), buf: make([]byte, 64<<10)}
}

// bom is the byte order mark in UTF-8.
const bom = "\ufeff"

// errShort means that the buffer ends before the record does.
var errShort = errors.New("more text is needed")

// next reads a record into fields and skips blank lines. It returns io.EOF after the last record, a *malformed after
// which reading may continue, or another error that ends reading.
func (r *records) next() error {
	for {
		err := r.record()
		if err != errShort {
			return err
		}
		r.more()
	}
}

// record is next within the buffered text. If it returns errShort, it can be called again with more text: it has passed
// only byte order marks, comments and blank lines.
func (r *records) record() error {
	for {
		if bytes.HasPrefix(r.buf[r.pos:r.end], []byte(bom)) { // joined files have one at the beginning of each
			r.pos += len(bom)
		}
		w := r.buf[r.pos:r.end]
		end, err := r.lineEnd(w, 0)
		if err != nil {
			return err
		}
		if len(w) == 0 {
			return io.EOF
		}
		r.recordLine = r.nextLine
		line := r.trimCR(w[:end])
		if r.comment != "" && bytes.HasPrefix(line, []byte(r.comment)) {
			r.skipTo(end)
			continue
		}
		if r.quote != 0 && bytes.IndexByte(line, r.quote) >= 0 {
			return r.quoted(w, end)
		}
		r.skipTo(end)
		if len(line) > 0 {
			return r.split(line)
		}
	}
}

// lineEnd returns the end of the line at o: a line end, or the end of w if the text ends there or w is too long for a
// record.
func (r *records) lineEnd(w []byte, o int) (int, error) {
	if n := bytes.IndexByte(w[o:], r.eol); n >= 0 {
		return o + n, nil
	}
	return len(w), r.ifShort(w)
}

// ifShort returns nil if the text ends with w or w is too long for a record. Otherwise it returns errShort or the
// error of the source.
func (r *records) ifShort(w []byte) error {
	switch {
	case r.srcErr == nil && len(w) <= r.maxRecord():
		return errShort
	case r.srcErr == io.EOF:
		return nil
	}
	return r.srcErr // nil, too, if w is too long
}

// skipTo continues after the line end, or the end of the text, at o.
func (r *records) skipTo(o int) {
	r.pos += o
	if r.pos < r.end {
		r.pos++
		r.nextLine++
	}
}

// trimCR removes the CR of a CRLF.
func (r *records) trimCR(line []byte) []byte {
	if n := len(line); n > 0 && r.eol == '\n' && line[n-1] == '\r' {
		return line[:n-1]
	}
	return line
}

// split splits a line without quotes into fields.
func (r *records) split(line []byte) error {
	rest := line
	r.fields = r.fields[:0]
	for {
		n := bytes.IndexByte(rest, r.delim)
		f := rest
		if n >= 0 {
			f = rest[:n]
		}
		if len(f) > r.maxField {
			return r.fieldTooLong(r.recordLine)
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
	if len(line) > r.maxRecord() {
		return r.recordTooLong()
	}
	return nil
}

// quoted reads the record at the start of w. Its first line ends at end and has a quote in it; further lines may
// follow. stop is the next quote of the line, or else its end.
func (r *records) quoted(w []byte, end int) error {
	r.fields, r.quotes = r.fields[:0], r.quotes[:0]
	stop := r.stop(w, 0, end)
	for o := 0; ; {
		if len(r.fields) == maxColumns {
			return r.tooManyColumns()
		}
		if stop < end && len(r.trimLeft(w[o:stop])) == 0 { // only blanks before the opening quote
			o = stop
		}
		if o < stop || stop == end { // a field without quotes, or a bare quote in one
			n := bytes.IndexByte(w[o:stop], r.delim)
			if n < 0 && stop < end {
				return r.badQuote(w, o, stop)
			}
			f := r.trimCR(w[o:stop])
			if n >= 0 {
				f = w[o : o+n]
			}
			if len(f) > r.maxField {
				return r.fieldTooLong(r.lineAt(w, o))
			}
			r.fields = append(r.fields, f)
			if n < 0 {
				return r.finish(w, end)
			}
			o += n + 1
			continue
		}
		// A field in quotes: o is at the opening one.
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
		after := r.trimLeft(w[to+1 : stop])
		last := stop == end && len(r.trimCR(after)) == 0
		if !last && (len(after) == 0 || after[0] != r.delim) {
			return r.badQuote(w, o, to)
		}
		r.fields = append(r.fields, w[o+1:to])
		if last {
			return r.finish(w, end)
		}
		o = stop - len(after) + 1
	}
}

// trimLeft removes the blanks at the start of v.
func (r *records) trimLeft(v []byte) []byte {
	for len(v) > 0 && (v[0] == ' ' || v[0] == '\t') && v[0] != r.delim {
		v = v[1:]
	}
	return v
}

// stop returns the next quote from o on, or else the end of the line.
func (r *records) stop(w []byte, o, end int) int {
	if n := bytes.IndexByte(w[o:end], r.quote); n >= 0 {
		return o + n
	}
	return end
}

// closing returns the position of the quote that ends the field whose quote opens at o.
func (r *records) closing(w []byte, o int) (int, error) {
	doubled := false // the field has doubled or escaped quotes
	for i := o + 1; i-o-1 <= r.maxField; {
		n := bytes.IndexByte(w[i:], r.quote)
		if n < 0 && len(w)-o-1 > r.maxField {
			break
		}
		if n < 0 || i+n+1 == len(w) { // a quote that ends the buffer may be the first of a doubled one: more text decides
			if err := r.ifShort(w); err != nil {
				return 0, err
			}
		}
		if n < 0 {
			break
		}
		i += n
		if r.escaped(w[o+1 : i]) {
			doubled = true
			i++
			continue
		}
		if i+1 < len(w) && w[i+1] == r.quote {
			doubled = true
			i += 2
			continue
		}
		if i-o-1 > r.maxField {
			break
		}
		if doubled || r.escape != 0 && bytes.IndexByte(w[o+1:i], r.escape) >= 0 {
			r.quotes = append(r.quotes, len(r.fields))
		}
		return i, nil
	}
	return 0, r.notClosed(w, o)
}

// escaped reports whether before ends with an odd number of escapes, so that the next quote does not end the field.
func (r *records) escaped(before []byte) bool {
	n := 0
	for r.escape != 0 && n < len(before) && before[len(before)-1-n] == r.escape {
		n++
	}
	return n%2 == 1
}

// finish ends a record at o.
func (r *records) finish(w []byte, o int) error {
	if o > r.maxRecord() {
		return r.recordTooLong()
	}
	r.nextLine = r.lineAt(w, o)
	r.skipTo(o)
	for _, i := range r.quotes {
		r.fields[i] = r.unquote(r.fields[i])
	}
	return nil
}

// unquote replaces doubled and escaped quotes with single ones, and doubled escapes with single ones, in place.
func (r *records) unquote(f []byte) []byte {
	to := 0
	for rest := f; ; {
		n := r.special(rest)
		if n < 0 || n+1 == len(rest) {
			return f[:to+copy(f[to:], rest)]
		}
		c, next := rest[n], rest[n+1]
		to += copy(f[to:], rest[:n])
		if rest = rest[n+1:]; next == r.quote || next == c {
			c, rest = next, rest[1:]
		}
		f[to] = c
		to++
	}
}

// special returns the position of the next quote or escape.
func (r *records) special(f []byte) int {
	if r.escape == 0 {
		return bytes.IndexByte(f, r.quote)
	}
	return bytes.IndexFunc(f, func(c rune) bool { return c == rune(r.quote) || c == rune(r.escape) })
}

// badQuote skips the record whose field at o has a misplaced quote at q. Reading continues after the line on which
// that field starts: if its opening quote was the mistake, the following lines are records of their own.
func (r *records) badQuote(w []byte, o, q int) error {
	end, err := r.lineEnd(w, o)
	if err != nil {
		return err
	}
	if end > r.maxRecord() {
		return r.recordTooLong()
	}
	m := &malformed{line: r.lineAt(w, o), field: len(r.fields), raw: r.trimCR(w[:end])}
	switch at := r.lineAt(w, q); {
	case w[o] != r.quote:
		m.reason = fmt.Sprintf("bare quote at character %d of the line", r.charAt(w, q))
	case at == m.line:
		m.reason = fmt.Sprintf("text after the closing quote at character %d of the line", r.charAt(w, q))
	default:
		m.reason = fmt.Sprintf("the quote opened at character %d of the line is closed by one in the middle of line %d",
			r.charAt(w, o), at)
	}
	if r.escape == 0 && q > o && w[q-1] == '\\' {
		m.reason += `; where \" is a quote within a value: --set quotes=backslash`
	}
	r.nextLine = m.line
	r.skipTo(end)
	return m
}

// notClosed explains a quote at o that is still open at the end of the text or of the longest allowed field.
func (r *records) notClosed(w []byte, o int) error {
	line, char := r.lineAt(w, o), r.charAt(w, o)
	open := w[o+1:]
	if len(open) <= r.maxField {
		return refuse("unterminated_quote", "line %d: the quote opened at character %d is never closed", line, char)
	}
	if bytes.IndexByte(open[:r.maxField], r.eol) < 0 {
		return r.fieldTooLong(line)
	}
	return refuse("unterminated_quote", "line %d: the quote opened at character %d is not closed within %s, the "+
		"longest field allowed (--with max_field_bytes=…)",
		line, char, humanize.IBytes(uint64(r.maxField)))
}

// lineAt returns the line number of offset o in the record at the start of w.
func (r *records) lineAt(w []byte, o int) int64 {
	return r.recordLine + int64(bytes.Count(w[:o], []byte{r.eol}))
}

// charAt returns the number of the character at offset o within its line, from 1.
func (r *records) charAt(w []byte, o int) int {
	return 1 + utf8.RuneCount(w[bytes.LastIndexByte(w[:o], r.eol)+1:o])
}

func (r *records) fieldTooLong(line int64) error {
	return refuse("field_too_long", "line %d: a field is longer than %s; where that is fine: --with max_field_bytes=…",
		line, humanize.IBytes(uint64(r.maxField)))
}

func (r *records) maxRecord() int { return fieldsPerRecord * r.maxField }

func (r *records) recordTooLong() error {
	return refuse("record_too_long", "line %d: a record is longer than %s", r.recordLine,
		humanize.IBytes(uint64(r.maxRecord())))
}

func (r *records) tooManyColumns() error {
	return refuse("too_many_columns", "line %d: more than %s columns", r.recordLine, humanize.Comma(maxColumns))
}

// more reads until the buffer is full or the text ends. It doubles a full buffer, so that a long record is searched a
// few times only.
func (r *records) more() {
	if r.srcErr != nil {
		return
	}
	r.offset += int64(r.pos)
	r.checked -= r.pos
	r.end = copy(r.buf, r.buf[r.pos:r.end])
	r.pos = 0
	if r.end == len(r.buf) {
		r.buf = append(r.buf, make([]byte, len(r.buf))...)
	}
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
	} else if bad = r.encoding.undefined(unchecked[:looked]); bad >= 0 {
		line := r.nextLine + int64(bytes.Count(r.buf[:r.checked+bad], []byte{r.eol}))
		r.srcErr = refuse("bad_encoding", "line %d: a byte that is not a character in %s", line, r.encoding.name)
	}
	if bad >= 0 {
		r.end = r.checked + bad
	}
	r.checked += looked
}
