package filecsv

import (
	"bytes"
	"errors"
	"io"
	"slices"
)

// dialect is how the rows of a text are written.
type dialect struct {
	delim   byte
	quote   byte   // 0: quotes mean nothing (text never holds NUL)
	escape  byte   // '\\': \" is a quote within a quoted field and \\ a backslash; 0: only "" is
	eol     byte   // '\n', or '\r' in files that know no other; a '\r' before '\n' belongs to the end
	comment string // lines that begin with it are passed over; "": none are
}

// found is what a look at the beginning of a text has found out.
type found struct {
	dialect
	skip int        // bytes above the table: lines that are no rows
	rows [][][]byte // the first ones; nil for malformed ones
}

// sniffedRows is how many rows are looked at to find out how a file is written.
const sniffedRows = 100

// sniff finds out how a text is written, as far as the rules leave it open.
func (r *rules) sniff(sample []byte, complete bool) found {
	f := found{dialect: dialect{delim: r.delim, quote: r.quote, escape: r.escape, comment: r.in.Comment}}
	f.eol = sniffEOL(sample, f.quote)
	f.skip = lines(sample, f.eol, r.in.Skip)
	if delim, end := namedDelimiter(sample[f.skip:], f.eol); end > 0 && (r.delim == 0 || r.delim == delim) {
		f.delim = delim
		f.skip += end
	} else if r.delim == 0 {
		f.delim = f.sniffDelimiter(sample[f.skip:], complete)
	}
	var starts []int64
	f.rows, starts = f.sampleRows(sample[f.skip:], complete)
	if r.in.Quotes == "auto" && untidy(f.rows) && bytes.Contains(sample, []byte(`\"`)) {
		escaped := f
		escaped.escape = '\\'
		if r.delim == 0 {
			escaped.delim = escaped.sniffDelimiter(sample[f.skip:], complete)
		}
		if rows, s := escaped.sampleRows(sample[f.skip:], complete); !untidy(rows) {
			f.dialect, f.rows, starts = escaped.dialect, rows, s
		}
	}
	if r.in.Quotes == "auto" && f.delim == '\t' && untidy(f.rows) {
		bare := f
		bare.quote = 0
		if rows, s := bare.sampleRows(sample[f.skip:], complete); !untidy(rows) && !enclosed(rows, f.quote) {
			f.dialect, f.rows, starts = bare.dialect, rows, s
		}
	}
	if r.in.Skip == 0 && r.in.Header != "no" {
		if n := r.preamble(f.rows); n > 0 {
			f.skip += lines(sample[f.skip:], f.eol, starts[n]-1)
			f.rows = f.rows[n:]
		}
	}
	return f
}

// lines returns how many bytes the first n lines of a text take.
func lines(text []byte, eol byte, n int64) (size int) {
	for ; n > 0; n-- {
		end := bytes.IndexByte(text[size:], eol)
		if end < 0 {
			return len(text)
		}
		size += end + 1
	}
	return size
}

// sniffEOL finds out which character ends lines: CR only if no LF stands outside quotes.
func sniffEOL(sample []byte, quote byte) byte {
	open, cr := false, false
	for _, c := range sample {
		switch {
		case c == quote && quote != 0:
			open = !open
		case open:
		case c == '\n':
			return '\n'
		case c == '\r':
			cr = true
		}
	}
	if cr {
		return '\r'
	}
	return '\n'
}

// namedDelimiter finds the line sep=; that spreadsheets write above the header, and where the next
// one begins.
func namedDelimiter(sample []byte, eol byte) (delim byte, next int) {
	end := bytes.IndexByte(sample, eol)
	line := bytes.TrimSuffix(sample[:max(end, 0)], []byte("\r"))
	if len(line) != 5 || !bytes.EqualFold(line[:4], []byte("sep=")) || bytes.IndexByte([]byte(usualDelimiters),
		line[4]) < 0 {
		return 0, 0
	}
	return line[4], end + 1
}

// usualDelimiters are those that are looked for.
const usualDelimiters = ",;\t|"

// sniffDelimiter returns the delimiter with which the most rows have the same number of
// columns, at least two; among equals the one that gives most columns; else a comma.
func (d dialect) sniffDelimiter(sample []byte, complete bool) byte {
	best, bestRows, bestColumns := byte(','), 0, 1
	for _, delim := range []byte(usualDelimiters) {
		d.delim = delim
		rows, _ := d.sampleRows(sample, complete)
		columns, n := commonWidth(rows)
		if columns > 1 && (n > bestRows || n == bestRows && columns > bestColumns) {
			best, bestRows, bestColumns = delim, n, columns
		}
	}
	return best
}

// sampleRows returns the rows of a sample, nil for malformed ones, and the lines on which they start.
// The last row may be cut off, so it is left out unless the sample is complete.
func (d dialect) sampleRows(sample []byte, complete bool) (rows [][][]byte, starts []int64) {
	r := &records{dialect: d, maxField: len(sample) + 1, line: 1, buf: bytes.Clone(sample), end: len(sample),
		srcErr: io.EOF}
	var m *malformed
	for len(rows) < sniffedRows {
		err := r.next()
		if err != nil && !errors.As(err, &m) {
			if err != io.EOF && complete { // a quote that is never closed
				rows, starts = append(rows, nil), append(starts, r.start)
			}
			break
		}
		var row [][]byte
		if err == nil {
			row = slices.Clone(r.fields)
		}
		rows, starts = append(rows, row), append(starts, r.start)
	}
	if !complete && len(rows) > 0 && len(rows) < sniffedRows {
		rows = rows[:len(rows)-1]
	}
	return rows, starts
}

// commonWidth returns the most frequent number of columns, the greater of equals, and how
// many rows have it.
func commonWidth(rows [][][]byte) (columns, count int) {
	counts := map[int]int{}
	for _, row := range rows {
		counts[len(row)]++
	}
	for c, n := range counts {
		if c > 0 && (n > count || n == count && c > columns) {
			columns, count = c, n
		}
	}
	return columns, count
}

// untidy reports whether a row is malformed, or wider or narrower than others.
func untidy(rows [][][]byte) bool {
	_, n := commonWidth(rows)
	return n < len(rows)
}

// enclosed is true if a field stands in quotes.
func enclosed(rows [][][]byte, quote byte) bool {
	for _, row := range rows {
		if slices.ContainsFunc(row, func(v []byte) bool { return len(v) > 1 && v[0] == quote && v[len(v)-1] == quote }) {
			return true
		}
	}
	return false
}

// preamble returns how many of the rows stand above the table, where that is certain. All further ones
// have the same width. Those above begin with # or are narrower by two columns at least, with a row
// below them that names the columns.
func (r *rules) preamble(rows [][][]byte) int {
	width, count := commonWidth(rows)
	n := slices.IndexFunc(rows, func(row [][]byte) bool { return len(row) == width })
	if n < 1 || count < len(rows)-n || width < 2 {
		return 0
	}
	marked, narrow := true, true
	for _, row := range rows[:n] {
		marked = marked && len(row) > 0 && bytes.HasPrefix(row[0], []byte("#"))
		narrow = narrow && len(row) <= width-2
	}
	if h := r.header(rows[n:]); marked || narrow && count > 2 && h.yes && h.because != "" {
		return n
	}
	return 0
}
