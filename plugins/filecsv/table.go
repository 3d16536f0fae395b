package filecsv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// table is a file that is being read: its records, and what was found out about it.
type table struct {
	*records
	meter   *meter
	skipped int64    // lines above the table
	header  header   // whether there is one
	first   string   // the first row, for people
	cells   [][]byte // of the header, as in the file, trimmed; nil without
	names   []string // of the columns
	behind  []string // what columns behind them would be called, which the header has no names for
}

// openTable finds out how the file is written, as far as the rules leave it open, and reads
// its header.
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
		return t, t.readHeader(r)
	}
	width, _ := commonWidth(rows)
	t.names = uniqueNames(make([][]byte, width))
	return t, nil
}

// sniff reads ahead until there is a row, finds out how rows are written, passes over what stands
// above them, and returns the first ones.
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
			t.pos, t.line = f.skip, t.line+t.skipped
			return f.rows, nil
		}
	}
}

// decideHeader tells whether the first row names the columns. Rows are not loaded by chance: if
// nothing tells, the table that is there does, or else somebody is asked.
func (t *table) decideHeader(ctx context.Context, r *rules, rows [][][]byte, o options) (header, error) {
	if r.in.Header != "auto" {
		return header{r.in.Header == "yes", "header=" + r.in.Header}, nil
	}
	h := r.header(rows)
	if h.because != "" || o.loader == nil || len(rows) == 0 || rows[0] == nil {
		return h, nil
	}
	names, _ := r.columns(trimAll(rows[0]))
	named, err := o.loader.hasColumns(ctx, names)
	if err != nil || named {
		return header{named, "the table has a column for each of its names"}, err
	}
	return h, refuse("header_unclear", "does the first row (%s) name the columns? The rows below do not tell: --set header=yes or --set header=no%s",
		t.first, t.remark())
}

// readHeader reads the first record as names.
func (t *table) readHeader(r *rules) error {
	err := t.next()
	var m *malformed
	switch {
	case errors.As(err, &m):
		return refuse("bad_header", "line %d: %s", m.line, m.reason)
	case err == io.EOF: // comments alone
		return refuse("empty", "the file has no rows, not even a header")
	case err != nil:
		return err
	}
	t.cells = trimAll(t.fields)
	for i, cell := range t.cells { // the fields are gone with the next record
		t.cells[i] = bytes.Clone(cell)
	}
	t.names, t.behind = r.columns(t.cells)
	return nil
}

// inDoubt adds to the lack of a column how the header was found, if that may be the reason.
func (t *table) inDoubt(err error) error {
	if code := codeOf(err); code != "missing_column" && code != "columns" || t.first == "" {
		return err
	}
	switch why := t.header.because; {
	case t.remark() != "":
		return fmt.Errorf("%w; the first row is %s%s", err, t.first, t.remark())
	case !t.header.yes:
		if why != "" {
			why = " (" + why + ")"
		}
		return fmt.Errorf("%w; the first row (%s) is not taken for the header%s: --set header=yes if it is; "+
			"else the columns are column_1, column_2 … (--set required=column_1, --set into.column_1=…)", err, t.first, why)
	case why == "":
		return fmt.Errorf("%w; nothing tells whether the first row (%s) is the header: --set header=no or --set skip=LINES if it is not", err, t.first)
	}
	return err
}

// remark is what helps if the first row is a remark above the header; "" if it does not look like one.
func (t *table) remark() string {
	if !strings.HasPrefix(t.first, "#") {
		return ""
	}
	return "; if that is a remark: --set comment=# passes over all lines like it, --set skip=LINES over those above the header"
}
