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
	quote   byte   // 0: quotes are ordinary characters (text never holds NUL)
	escape  byte   // '\\': in a quoted field, \" is a quote and \\ a backslash; 0: only "" is a quote
	eol     byte   // '\n', or '\r' in files without '\n'; a '\r' before '\n' belongs to the end
	comment string // lines that begin with it are skipped; "": no line is
}

// found is what the beginning of a text shows.
type found struct {
	dialect
	skip int        // bytes of lines above the table
	rows [][][]byte // the first rows; nil for malformed ones
}

// sniffedRows is how many rows are read to detect the dialect of a file.
const sniffedRows = 100

// sniff detects the dialect of a text, where the rules leave it open.
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

// lines returns the length of the first n lines of a text in bytes.
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

// sniffEOL detects the character that ends lines: CR only if no LF is outside quotes.
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

// namedDelimiter reads the line sep=; that spreadsheets write above the header. It returns the delimiter and the
// start of the next line.
func namedDelimiter(sample []byte, eol byte) (delim byte, next int) {
	end := bytes.IndexByte(sample, eol)
	line := bytes.TrimSuffix(sample[:max(end, 0)], []byte("\r"))
	if len(line) != 5 || !bytes.EqualFold(line[:4], []byte("sep=")) || bytes.IndexByte([]byte(usualDelimiters),
		line[4]) < 0 {
		return 0, 0
	}
	return line[4], end + 1
}

// usualDelimiters are the delimiters that are detected.
const usualDelimiters = ",;\t|"

// sniffDelimiter returns the delimiter that gives the most rows with the same number of columns, at least two. If
// several do, the one with the most columns is chosen. If none does, the comma is.
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

// sampleRows returns the rows of a sample, nil for malformed ones, and the lines on which they start. Unless the
// sample is complete, the last row may be cut off, so it is left out.
func (d dialect) sampleRows(sample []byte, complete bool) (rows [][][]byte, starts []int64) {
	r := &records{dialect: d, maxField: len(sample) + 1, nextLine: 1, buf: bytes.Clone(sample), end: len(sample),
		srcErr: io.EOF}
	var m *malformed
	for len(rows) < sniffedRows {
		err := r.next()
		if err != nil && !errors.As(err, &m) {
			if err != io.EOF && complete { // a quote that is never closed
				rows, starts = append(rows, nil), append(starts, r.recordLine)
			}
			break
		}
		var row [][]byte
		if err == nil {
			row = slices.Clone(r.fields)
		}
		rows, starts = append(rows, row), append(starts, r.recordLine)
	}
	if !complete && len(rows) > 0 && len(rows) < sniffedRows {
		rows = rows[:len(rows)-1]
	}
	return rows, starts
}

// commonWidth returns the most frequent number of columns, the greater if two are equally frequent, and how many rows
// have it.
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

// untidy reports whether any row is malformed or has another width than most.
func untidy(rows [][][]byte) bool {
	_, n := commonWidth(rows)
	return n < len(rows)
}

// enclosed reports whether any field is in quotes.
func enclosed(rows [][][]byte, quote byte) bool {
	for _, row := range rows {
		if slices.ContainsFunc(row, func(v []byte) bool { return len(v) > 1 && v[0] == quote && v[len(v)-1] == quote }) {
			return true
		}
	}
	return false
}

// preamble returns how many rows above the table are certainly not part of it. All rows below must have the same
// width. The rows above begin with #, or they are narrower by at least two columns and the next row names the
// columns.
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
