package filecsv

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
)

// sniffedRows is how many rows are looked at to find out how a file is written.
const sniffedRows = 100

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

// namedDelimiter finds the line sep=; that spreadsheets write above the header, and where it ends.
func namedDelimiter(sample []byte, eol byte) (delim byte, end int) {
	end = bytes.IndexByte(sample, eol)
	line := bytes.TrimSuffix(sample[:max(end, 0)], []byte("\r"))
	if len(line) != 5 || !bytes.EqualFold(line[:4], []byte("sep=")) || bytes.IndexByte([]byte(usualDelimiters), line[4]) < 0 {
		return 0, 0
	}
	return line[4], end
}

// usualDelimiters are those that are looked for.
const usualDelimiters = ",;\t|"

// sniffDelimiter returns the delimiter with which the most rows have the same number of
// columns, at least two; among equals the one that gives most columns; else a comma.
func sniffDelimiter(sample []byte, complete bool, quote, eol byte) byte {
	best, bestRows, bestColumns := byte(','), 0, 1
	for _, delim := range []byte(usualDelimiters) {
		columns, rows := commonWidth(sampleRows(sample, complete, delim, quote, eol))
		if columns > 1 && (rows > bestRows || rows == bestRows && columns > bestColumns) {
			best, bestRows, bestColumns = delim, rows, columns
		}
	}
	return best
}

// sampleRows returns the rows of a sample, nil for malformed ones; not the last, which may be
// cut off, unless the sample is complete.
func sampleRows(sample []byte, complete bool, delim, quote, eol byte) [][][]byte {
	r := &records{delim: delim, quote: quote, eol: eol, buf: bytes.Clone(sample), end: len(sample), srcErr: io.EOF}
	var rows [][][]byte
	var m *malformed
	for len(rows) < sniffedRows {
		if err := r.next(); errors.As(err, &m) {
			rows = append(rows, nil)
		} else if err != nil {
			break
		} else {
			rows = append(rows, slices.Clone(r.fields))
		}
	}
	if !complete && len(rows) > 0 && len(rows) < sniffedRows {
		rows = rows[:len(rows)-1]
	}
	return rows
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

// sniffHeader tells whether the first row names the columns. It does if it has a column that
// the payload names. Otherwise the columns vote: one in which all further values are numbers,
// dates or truth values says yes if the first value is none, and no if it is one; if none
// can say, it does unless it has a value of that kind.
func sniffHeader(rows [][][]byte, r *rules) bool {
	if len(rows) == 0 || rows[0] == nil {
		return true // there is nothing to tell, or reading it will
	}
	votes, typed, named := 0, false, r.named()
	for i, v := range rows[0] {
		v = trim(v)
		if slices.Contains(named, string(v)) {
			return true
		}
		if r.isNull(v) {
			continue
		}
		isText := r.kindOf(v) == kindText
		typed = typed || !isText
		if !r.typedBelow(rows[1:], i) {
			continue
		}
		if isText {
			votes++
		} else {
			votes--
		}
	}
	return votes > 0 || votes == 0 && !typed
}

// typedBelow is true if column i has values in rows and none of them is text.
func (r *rules) typedBelow(rows [][][]byte, i int) bool {
	values := 0
	for _, row := range rows {
		if i >= len(row) || r.isNull(trim(row[i])) {
			continue
		}
		if r.kindOf(trim(row[i])) == kindText {
			return false
		}
		values++
	}
	return values > 0
}

// uniqueNames makes names of a header: blank ones become column_3, repeated ones name_2.
func uniqueNames(header [][]byte) []string {
	names := make([]string, len(header))
	taken := map[string]bool{}
	for i, h := range header {
		names[i] = string(trim(h))
		if names[i] == "" {
			names[i] = "column_" + strconv.Itoa(i+1)
		}
		taken[names[i]] = true
	}
	seen := map[string]int{}
	for i, name := range names {
		seen[name]++
		for n := seen[name]; n > 1 && taken[names[i]]; n++ {
			names[i] = name + "_" + strconv.Itoa(n)
		}
		taken[names[i]] = true
	}
	return names
}
