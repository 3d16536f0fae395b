package filecsv

import (
	"bytes"
	"context"
	"errors"
	"io"
)

// table is a file that is being read: its records, and what was found out about it.
type table struct {
	*records
	meter   *meter
	skipped int64    // lines above the table
	header  header   // whether there is one
	cells   [][]byte // of the header, as in the file, trimmed; nil without
	names   []string // of the columns
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
	if t.header, err = r.decideHeader(ctx, rows, o); err != nil {
		return nil, err
	}
	if t.header.yes {
		return t, t.readHeader()
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
func (r *rules) decideHeader(ctx context.Context, rows [][][]byte, o options) (header, error) {
	if r.in.Header != "auto" {
		return header{r.in.Header == "yes", "header=" + r.in.Header}, nil
	}
	h := r.header(rows)
	if h.because != "" || o.loader == nil || len(rows) == 0 || rows[0] == nil {
		return h, nil
	}
	return o.loader.header(ctx, rows[0])
}

// readHeader reads the first record as names.
func (t *table) readHeader() error {
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
	for _, f := range t.fields {
		t.cells = append(t.cells, bytes.Clone(trim(f)))
	}
	t.names = uniqueNames(t.cells)
	return nil
}
