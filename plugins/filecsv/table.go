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
	meter     *meter
	encoding  string
	hasHeader bool
	header    [][]byte // as in the file, trimmed; nil without
	names     []string // of the columns
}

// openTable finds out how the file is written, as far as the rules leave it open, and reads
// its header.
func openTable(ctx context.Context, raw io.Reader, r *rules, o options) (*table, error) {
	t := &table{meter: newMeter(ctx, raw, o.progress)}
	unpacked, err := unpack(t.meter, o.name, o.maxBytes)
	if err != nil {
		return nil, err
	}
	text, mark, encoding, err := decode(unpacked, r.in.Encoding)
	if err != nil {
		return nil, err
	}
	t.encoding, t.records = encoding, newRecords(text, mark)
	rows, err := t.sniff(r)
	if err != nil {
		return nil, err
	}
	t.hasHeader = r.in.Header == "yes" || r.in.Header == "auto" && sniffHeader(rows, r)
	if t.hasHeader {
		return t, t.readHeader()
	}
	width, _ := commonWidth(rows)
	t.names = uniqueNames(make([][]byte, width))
	return t, nil
}

// sniff reads ahead until there is a row, finds out the line ends and the delimiter, and
// returns some rows.
func (t *table) sniff(r *rules) ([][][]byte, error) {
	t.quote = r.quote
	for {
		t.more()
		if t.srcErr != nil && t.srcErr != io.EOF {
			return nil, t.srcErr
		}
		sample, complete := t.buf[:t.end], t.srcErr == io.EOF
		t.eol, t.delim = sniffEOL(sample, t.quote), r.delim
		above := 0
		if delim, end := namedDelimiter(sample, t.eol); end > 0 && (r.delim == 0 || r.delim == delim) {
			t.delim, above = delim, end
		} else if r.delim == 0 {
			t.delim = sniffDelimiter(sample, complete, t.quote, t.eol)
		}
		rows := sampleRows(sample[above:], complete, t.delim, t.quote, t.eol)
		if len(rows) > 0 || complete || t.end > maxRecord {
			if above > 0 {
				t.skipTo(above)
			}
			return rows, nil
		}
	}
}

// readHeader reads the first record as names.
func (t *table) readHeader() error {
	err := t.next()
	var m *malformed
	switch {
	case errors.As(err, &m):
		return refuse("bad_header", "line %d: %s", m.line, m.reason)
	case err == io.EOF: // an empty file
		t.hasHeader = false
		return nil
	case err != nil:
		return err
	}
	for _, f := range t.fields {
		t.header = append(t.header, bytes.Clone(trim(f)))
	}
	t.names = uniqueNames(t.header)
	return nil
}
