package filecsv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
)

// table is a file that is being read: its records and its detected dialect.
type table struct {
	*records
	meter   *meter
	skipped int64    // lines above the table
	header  header   // whether there is one
	first   string   // the first row, for people
	cells   [][]byte // of the header, trimmed; nil without one
	names   []string // of the columns
	unnamed []string // names for the columns after them that the header does not name
}

// openTable detects how the file is written, where the rules leave it open, and reads its header.
func openTable(ctx context.Context, raw io.Reader, r *rules, o options) (*table, error) {
	t := &table{meter: newMeter(ctx, raw, o.progress)}
	unpacked, err := unpack(t.meter, o.name, o.maxBytes)
	if err != nil {
		return nil, err
	}
	text, mark, encoding, err := decode(unpacked, r.encoding)
	if err != nil {
		return nil, err
	}
	t.records = newRecords(text, mark)
	t.encoding, t.maxField = encoding, o.maxField
	rows, err := t.sniff(r)
	if err != nil {
		return nil, err
	}
	if len(rows) > 0 {
		t.first = shown(string(bytes.Join(trimAll(rows[0]), []byte(", "))))
	}
	if t.header, err = t.decideHeader(ctx, r, rows, o); err != nil {
		return nil, err
	}
	if t.header.yes {
		return t, t.readHeader(r, rows)
	}
	if t.names = r.in.Columns; len(t.names) == 0 {
		width, _ := commonWidth(rows)
		t.names = uniqueNames(make([][]byte, width))
	}
	return t, nil
}

// sniff reads until there is a row, detects the dialect, skips the lines above the table, and returns the first rows.
func (t *table) sniff(r *rules) ([][][]byte, error) {
	t.dialect.comment, t.dialect.quote = r.in.Comment, r.quote
	for {
		t.more()
		if t.srcErr != nil && t.srcErr != io.EOF {
			return nil, t.srcErr
		}
		sample, complete := t.buf[:t.end], t.srcErr == io.EOF
		if err := notRows(sample); err != nil && (complete || codeOf(err) != "empty") {
			return nil, err
		}
		f := r.sniff(sample, complete)
		if len(f.rows) > 0 || complete || t.end > t.maxRecord() {
			t.dialect = f.dialect
			t.skipped = int64(bytes.Count(sample[:f.skip], []byte{f.eol}))
			if t.skipped < r.in.Skip && !complete {
				return nil, refuse("bad_check", "skip: the first %d lines have more than %s, the most that can be skipped",
					r.in.Skip, humanize.IBytes(uint64(t.end)))
			}
			t.pos, t.nextLine = f.skip, t.nextLine+t.skipped
			return f.rows, nil
		}
	}
}

// decideHeader decides whether the first row names the columns. A load must not guess: without a clear sign the
// existing table decides, or else a person is asked.
func (t *table) decideHeader(ctx context.Context, r *rules, rows [][][]byte, o options) (header, error) {
	if r.in.Header != "auto" {
		because := "header=" + r.in.Header
		if len(r.in.Columns) > 0 {
			because = "columns names them"
		}
		return header{yes: r.in.Header == "yes", because: because}, nil
	}
	h := r.header(rows)
	if h.because != "" && !h.weak || o.loader == nil || len(rows) == 0 || rows[0] == nil {
		return h, nil
	}
	names, _ := r.columns(trimAll(rows[0]))
	named, err := o.loader.hasColumns(ctx, names)
	if err != nil || named {
		return header{yes: named, because: "the table has a column for each of its names"}, err
	}
	if remark := t.remark(); remark != "" {
		return h, refuse("header_unclear", "the first row is %s%s; if it names the columns: --set header=yes", t.first, remark)
	}
	why := "The rows below do not tell"
	if h.weak {
		why = h.because
	}
	return h, refuse("header_unclear", "does the first row (%s) name the columns? %s: --set "+
		"header=yes, or --set columns=… (names of the columns: %d)", t.first, why, len(rows[0]))
}

// readHeader reads the first record as names. rows are the first rows, with the header. A delimiter at the end of all
// rows, but not of the header, counts as a blank name at its end.
func (t *table) readHeader(r *rules, rows [][][]byte) error {
	err := t.next()
	m, bad := errors.AsType[*malformed](err)
	switch {
	case bad:
		return refuse("bad_header", "line %d: %s", m.line, m.reason)
	case err == io.EOF: // only comments
		return refuse("empty", "the file has no rows, not even a header")
	case err != nil:
		return err
	}
	t.cells = trimAll(t.fields)
	for i, cell := range t.cells { // the next record overwrites the fields
		t.cells[i] = bytes.Clone(cell)
	}
	width := len(t.cells) + 1
	if len(rows) > 1 && !slices.ContainsFunc(rows[1:], func(row [][]byte) bool {
		return len(row) != width || len(trim(row[width-1])) > 0
	}) {
		t.cells = append(t.cells, nil)
	}
	t.names, t.unnamed = r.columns(t.cells)
	return nil
}

// isHeader reports whether a row repeats the header, as joined files do.
func (t *table) isHeader(row [][]byte) bool {
	return t.header.yes && len(row) <= len(t.cells) && sameRow(row, t.cells[:len(row)])
}

// withHeaderHint adds to an error about a missing column how the header was found, if that may be the cause.
func (t *table) withHeaderHint(err error, r *rules) error {
	if code := codeOf(err); code != "missing_column" && code != "columns" || t.first == "" {
		return err
	}
	switch why := t.header.because; {
	case len(r.in.Columns) > 0:
	case t.remark() != "":
		return fmt.Errorf("%w; the first row is %s%s", err, t.first, t.remark())
	case !t.header.yes:
		if why != "" {
			why = " (" + why + ")"
		}
		return fmt.Errorf("%w; the first row (%s) is not taken for the header%s: --set header=yes if it is; "+
			"no header: --set columns=… (names of the columns: %d)", err, t.first, why, len(t.names))
	case why == "":
		return fmt.Errorf("%w; nothing tells whether the first row (%s) is the header: if it is not, --set columns=… "+
			"(names of the columns: %d) or --set skip=LINES", err, t.first, len(t.names))
	}
	return err
}

// remark returns advice if the first row looks like a remark above the header, else "".
func (t *table) remark() string {
	for _, mark := range commentMarks {
		if strings.HasPrefix(t.first, mark) {
			return "; if that is a remark: --set comment=" + mark + " passes over all lines like it, --set skip=LINES over " +
				"those above the header"
		}
	}
	return ""
}

// commentMarks begin remarks in most files that have some.
var commentMarks = []string{"#", "//", "--"}
