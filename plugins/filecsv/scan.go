package filecsv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/dustin/go-humanize"
)

const (
	maxSamples     = 10        // bad rows in the output
	maxColumnsSize = 512 << 10 // bytes of columns in the output
)

// options are the inputs of a scan besides the payload.
type options struct {
	name      string // of the file
	maxBytes  int64  // of text, unpacked
	maxField  int    // bytes
	maxUnique int    // values of unique columns
	rejects   *rejects
	loader    *loader          // nil: nothing is loaded
	progress  func(read int64) // of the file, not unpacked
}

// scanFile works one file. If it fails, it also returns its findings, or an empty Out if there are none.
func scanFile(ctx context.Context, f *file, in In, o options) (Out, error) {
	out, err := scan(ctx, f, in, o)
	if ctx.Err() != nil {
		return out, context.Cause(ctx)
	}
	if changed := f.checkUnchanged(); changed != nil {
		return out, changed // the change may have caused all other errors
	}
	if err != nil && codeOf(err) != badRows {
		return out, err
	}
	if out.Bytes != f.before.Size() {
		return out, errChanged
	}
	if err == nil && o.loader != nil {
		if err := o.loader.commit(ctx, &out); err != nil {
			return out, err // keep the old rejects file: it belongs to the data that is still loaded
		}
	}
	rejects, commitErr := o.rejects.commit()
	if commitErr != nil {
		return out, commitErr
	}
	out.Rejects = rejects
	return out, err
}

// scan reads a file to its end and checks it.
func scan(ctx context.Context, raw io.Reader, in In, o options) (Out, error) {
	r, err := newRules(in)
	if err != nil {
		return Out{}, err
	}
	s := &scanner{ctx: ctx, raw: raw, rules: r, options: o, start: time.Now()}
	err = s.run()
	if s.table != nil {
		s.describe()
	}
	return s.out, err
}

// scanner is one scan.
type scanner struct {
	options
	ctx     context.Context
	start   time.Time
	raw     io.Reader
	rules   *rules
	table   *table
	columns []column
	checks  []check
	uniques []unique
	values  int    // of the unique columns
	first   BadRow // the first bad row of the file
	headers int64  // rows that repeat the header
	misfit  int64  // rows with more or fewer fields than the header
	out     Out
}

func (s *scanner) run() (err error) {
	if s.table, err = openTable(s.ctx, s.raw, s.rules, s.options); err != nil {
		return err
	}
	names := s.table.names
	if err := s.rules.missing(names); err != nil {
		return s.table.withHeaderHint(err, s.rules)
	}
	s.columns = make([]column, len(names))
	for i, name := range names {
		s.columns[i].name = name
	}
	s.checks = s.rules.checks(names)
	for _, c := range s.rules.uniqueColumns(names) {
		s.uniques = append(s.uniques, unique{column: c, lines: map[digest]int64{}})
	}
	if s.loader != nil {
		if err := s.loader.begin(s.ctx, s.rules, names); err != nil {
			return s.table.withHeaderHint(err, s.rules)
		}
	}
	if err := s.rows(); err != nil {
		return err
	}
	s.out.SHA256 = s.table.meter.digest()
	if allowed := s.rules.in.allowed(s.out.Rows); allowed >= 0 && s.out.BadRows > allowed {
		return s.tooBad(allowed)
	}
	return nil
}

// tooBad refuses a file with more bad rows than are allowed.
func (s *scanner) tooBad(allowed int64) error {
	most := ""
	if allowed > 0 {
		most = fmt.Sprintf(" (%s allowed)", humanize.Comma(allowed))
	}
	hint := ""
	if remark := s.table.remark(); remark != "" && 2*s.misfit > s.out.Rows {
		hint = "; the first row is " + s.table.first + remark
	} else if s.table.header.yes && s.misfit == s.out.Rows {
		hint = "; is the header on another line? --set skip=LINES"
	} else if s.headers == s.out.BadRows {
		hint = fmt.Sprintf("; no other row is bad: --set max_bad_rows=%d", s.headers)
	} else if n := len(s.rules.in.Columns); n > 0 && s.misfit == s.out.Rows {
		hint = fmt.Sprintf("; columns has the names of %d columns", n)
	}
	return refuse(badRows, "%s of %s rows bad%s, the first on line %d: %s%s",
		humanize.Comma(s.out.BadRows), humanize.Comma(s.out.Rows), most, s.first.Line, s.first.text(), hint)
}

// rows reads all rows once.
func (s *scanner) rows() error {
	for {
		if err := s.table.next(); err == io.EOF {
			return nil
		} else if err != nil {
			m, ok := errors.AsType[*malformed](err)
			if !ok {
				return err
			}
			s.out.Rows++
			b := BadRow{Line: m.line, Reason: m.reason}
			if m.field < len(s.columns) {
				b.Column = s.columns[m.field].name
			}
			if err := s.bad(b, [][]byte{m.raw}); err != nil {
				return err
			}
			continue
		}
		s.out.Rows++
		if err := s.row(s.table.recordLine, s.table.fields); err != nil {
			return err
		}
	}
}

// row checks a well-formed row, loads it and counts its values.
func (s *scanner) row(line int64, fields [][]byte) error {
	if width := len(s.columns) + len(s.table.unnamed); len(fields) != width {
		s.misfit++
		return s.bad(BadRow{Line: line, Reason: fmt.Sprintf("the number of fields is %d, not %d", len(fields), width)},
			fields)
	}
	for i, name := range s.table.unnamed {
		if v := trim(fields[len(s.columns)+i]); !s.rules.isNull(v) {
			s.misfit++
			return s.bad(BadRow{line, name, fmt.Sprintf("the header has no name for the value %q; --set required=%s makes it "+
				"a column", shown(string(v)), name)}, fields)
		}
	}
	fields = fields[:len(s.columns)]
	if s.table.isHeader(fields) {
		s.headers++
		return s.bad(BadRow{Line: line, Reason: "the header comes again"}, fields)
	}
	for i := range s.checks {
		c := &s.checks[i]
		v := trim(fields[c.column])
		if reason := c.fails(v, s.rules.isNull(v)); reason != "" {
			return s.bad(BadRow{line, s.columns[c.column].name, reason}, fields)
		}
	}
	if b := s.duplicate(fields); b.Reason != "" {
		b.Line = line
		return s.bad(b, fields)
	}
	if s.loader != nil {
		b, err := s.loader.add(s.ctx, fields)
		if err != nil {
			return err
		}
		if b.Reason != "" {
			b.Line = line
			return s.bad(b, fields)
		}
	}
	if err := s.keepUnique(line); err != nil {
		return err
	}
	for i, f := range fields {
		c := &s.columns[i]
		if v := trim(f); s.rules.isNull(v) {
			c.nulls++
		} else {
			c.add(v, s.rules.notation)
		}
	}
	return nil
}

// bad counts a bad row and keeps it for the output.
func (s *scanner) bad(b BadRow, fields [][]byte) error {
	s.out.BadRows++
	if s.out.BadRows == 1 {
		s.first = b
	}
	if s.loader != nil && s.rules.in.tooMany(s.out.BadRows) {
		s.loader.close() // the load cannot succeed, so it stops blocking others
	}
	if len(s.out.Samples) < maxSamples {
		s.out.Samples = append(s.out.Samples, BadRow{b.Line, shown(b.Column), b.Reason})
	}
	return s.rejects.add(s.table.names, b, fields)
}

// describe adds the facts about the file to the output.
func (s *scanner) describe() {
	t := s.table
	s.out.Bytes, s.out.Encoding, s.out.Skipped = t.meter.read, t.encoding.name, t.skipped
	s.out.Header, s.out.HeaderWhy = t.header.yes, t.header.because
	if s.out.Quotes = "double"; t.quote == 0 {
		s.out.Quotes = "no"
	} else if t.escape != 0 {
		s.out.Quotes = "backslash"
	}
	if s.out.Delimiter = string(t.delim); t.delim == '\t' {
		s.out.Delimiter = "tab"
	}
	s.out.ColumnCount, s.out.DurationMS = len(t.names), time.Since(s.start).Milliseconds()
	size := 0
	for i := range s.columns {
		c := s.columns[i].summary()
		if t.cells != nil && string(t.cells[i]) != s.columns[i].name {
			h := shown(string(t.cells[i]))
			c.Header = &h
		}
		text, _ := json.Marshal(c) // strings and numbers cannot fail
		if size += len(text); size > maxColumnsSize {
			return
		}
		s.out.Columns = append(s.out.Columns, c)
	}
}
