package intake

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/payload"
)

// errEncoding is the reason for text that JSON cannot hold. Replacing its bytes would change the text, and could make
// different texts equal.
var errEncoding = errors.New("not UTF-8")

// column returns the name of the column with the input.
func (s *Source) column() string {
	switch {
	case s.Key != "":
		return s.Key
	case s.Query != nil:
		return DefaultKey
	}
	return s.Input.Field
}

// table is a CSV file whose header has been read.
type table struct {
	*csv.Reader
	ahead  *io.LimitedReader // what a row may still read
	name   string
	header []string
	input  int          // index of the input's column
	only   map[int]bool // columns that are only the input, and no field of the payload
}

// Read reads a row. One that is too long is an error that ends the table: after a quote that is not closed, no row is
// known to begin.
func (t *table) Read() ([]string, error) {
	t.ahead.N = maxLine + 4<<10 // a csv.Reader reads ahead
	cells, err := t.Reader.Read()
	if t.ahead.N > 0 {
		return cells, err
	}
	reason := fmt.Sprintf("a row is longer than %d bytes: is a quote not closed?", maxLine)
	if open, ok := errors.AsType[*csv.ParseError](err); ok {
		reason = fmt.Sprintf("line %d: %s", open.StartLine, reason)
	}
	return nil, errors.New(reason)
}

// csv makes one item per row; the header names the fields of the payload.
func (r *reader) csv(name string) bool {
	in, done, err := r.open(name)
	if err != nil {
		return r.fatal(err)
	}
	defer done()
	t, err := r.readHeader(name, in)
	if err != nil {
		return r.fatal(err)
	}
	for {
		if err := r.ctx.Err(); err != nil {
			return r.fatal(err)
		}
		cells, err := t.Read()
		line, _ := 0, 0
		if err == nil {
			line, _ = t.FieldPos(0)
		}
		switch pe, bad := errors.AsType[*csv.ParseError](err); {
		case errors.Is(err, io.EOF):
			return true
		case bad:
			if !r.bad(origin{name, pe.StartLine}, pe.Err) {
				return false
			}
			continue
		case err != nil:
			return r.fatal(&ArgError{Input: name, Reason: cause(err), Err: err})
		}
		if !r.csvRow(t, cells, origin{name, line}) {
			return false
		}
	}
}

// readHeader reads the names of the columns of a CSV file, and finds the column of the input.
func (r *reader) readHeader(name string, in io.Reader) (*table, error) {
	br := bufio.NewReaderSize(in, 64<<10)
	first := firstLine(br)
	ahead := &io.LimitedReader{R: br}
	t := &table{Reader: csv.NewReader(ahead), ahead: ahead, name: name, input: -1, only: map[int]bool{}}
	t.Comma = delimiter(first)
	t.ReuseRecord = true
	header, err := t.Read()
	if errors.Is(err, io.EOF) {
		return nil, &ArgError{Input: name, Reason: "is empty: a table begins with the names of its columns"}
	} else if err != nil {
		return nil, &ArgError{Input: name, Reason: cause(err), Err: err}
	}
	seen := map[string]bool{}
	for i, cell := range header {
		column := trim(cell)
		switch {
		case !utf8.ValidString(column):
			return nil, &ArgError{Input: name + ":1", Reason: fmt.Sprintf("the name of column %d is %v", i+1, errEncoding)}
		case column == "":
			return nil, &ArgError{Input: name + ":1", Reason: fmt.Sprintf("column %d has no name", i+1)}
		case seen[column]:
			return nil, &ArgError{Input: name + ":1", Reason: fmt.Sprintf("there are two columns %q", column)}
		}
		seen[column] = true
		t.header = append(t.header, column)
		if column == r.column() {
			t.input = i
		}
		if strings.HasPrefix(column, "#") && i != t.input { // a comment
			t.only[i] = true
			continue
		}
		if err := r.checkColumn(column); err != nil {
			if i != t.input {
				return nil, &ArgError{Input: name + ":1", Reason: err.Error(), Err: err}
			}
			t.only[i] = true
		}
	}
	switch {
	case r.column() == "":
		return nil, &ArgError{Input: name, Reason: "which column is the key?", Hint: "--key COLUMN; there are " +
			strings.Join(t.header, ", ")}
	case t.input < 0:
		return nil, &ArgError{Input: name, Reason: fmt.Sprintf("has no column %q", r.column()),
			Hint: "--key COLUMN names the one that is the input; there are " + strings.Join(t.header, ", ")}
	}
	return t, nil
}

// checkColumn returns an error if the payload has no such field, or the name would be read as more than a name in an
// assignment.
func (s *Source) checkColumn(name string) error {
	if strings.Contains(name, "=") || strings.HasSuffix(name, ":") {
		return fmt.Errorf("column %q: a name must not have = in it or : at its end", name)
	}
	if s.Parse == nil {
		return nil
	}
	_, err := s.Parse(nil, []string{name + ":=null"})
	return err
}

// firstLine returns what is buffered once a line has been read or the buffer is full. It waits for no more: rows may
// come slowly through a pipe.
func firstLine(br *bufio.Reader) []byte {
	for {
		_, err := br.Peek(br.Buffered() + 1)
		text, _ := br.Peek(br.Buffered())
		if err != nil || bytes.IndexByte(text, '\n') >= 0 {
			return text
		}
	}
}

// delimiter returns the character of comma, semicolon and tab that is most frequent in the first line.
func delimiter(text []byte) rune {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	best, most := ',', bytes.Count(line, []byte(","))
	for _, d := range []rune{';', '\t'} {
		if n := bytes.Count(line, []byte(string(d))); n > most {
			best, most = d, n
		}
	}
	return best
}

// csvRow makes an item of a row; empty cells are absent.
func (r *reader) csvRow(t *table, cells []string, o origin) bool {
	var assignments []string
	for i, cell := range cells {
		if !utf8.ValidString(cell) {
			return r.bad(o, fmt.Errorf("column %q is %w", t.header[i], errEncoding))
		}
		if cell != "" && !t.only[i] {
			assignments = append(assignments, t.header[i]+"="+cell)
		}
	}
	row := map[string]json.RawMessage{}
	if r.Parse != nil {
		object, err := r.Parse(nil, assignments)
		if err == nil {
			err = json.Unmarshal(object, &row)
		}
		if err != nil {
			return r.bad(o, err)
		}
	} else {
		for _, a := range assignments {
			name, value, _ := strings.Cut(a, "=")
			row[name] = quote(value)
		}
	}
	return r.row(row, cells[t.input], o)
}

// jsonl makes one item per line, a JSON object.
func (r *reader) jsonl(name string) bool {
	if r.column() == "" {
		return r.fatal(&ArgError{Input: name, Reason: "which field is the key?", Hint: "--key FIELD"})
	}
	return r.lines(name, func(n int, text string, err error) bool {
		o := origin{name, n}
		if err == nil && trim(text) == "" {
			return true
		}
		row := map[string]json.RawMessage{}
		if err == nil && !utf8.ValidString(text) {
			err = errEncoding
		}
		if err != nil {
			return r.bad(o, err)
		}
		if err := json.Unmarshal([]byte(text), &row); err != nil {
			reason := "not a JSON object"
			if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
				reason += ": " + syntax.Error()
			}
			return r.bad(o, errors.New(reason))
		}
		if err := payload.CheckText([]byte(text)); err != nil {
			return r.bad(o, err)
		}
		input, err := scalar(row[r.column()])
		if err != nil {
			return r.bad(o, fmt.Errorf("field %q %w", r.column(), err))
		}
		if r.checkColumn(r.column()) != nil { // only the key, and no field of the payload
			delete(row, r.column())
		}
		return r.row(row, input, o)
	})
}

// scalar returns the text of a JSON string or number.
func scalar(value json.RawMessage) (string, error) {
	if len(value) == 0 {
		return "", errors.New("is missing")
	}
	var text string
	var number json.Number
	if json.Unmarshal(value, &text) == nil {
		return text, nil
	}
	if err := json.Unmarshal(value, &number); err != nil {
		return "", errors.New("is neither text nor a number")
	}
	return number.String(), nil
}

// row makes an item from the fields of a row and its input.
func (r *reader) row(row map[string]json.RawMessage, input string, o origin) bool {
	return r.rowOf(r.Template, row, input, o)
}

// rowOf completes n as the item of a row.
func (r *reader) rowOf(n ledger.NewItem, row map[string]json.RawMessage, input string, o origin) bool {
	if trim(input) == "" {
		return r.bad(o, errors.New("blank key"))
	}
	fills, err := r.identify(&n, input)
	if err == nil {
		n.Given = r.given(row)
		n.Payload, err = r.rowPayload(row, fills)
	}
	if err != nil {
		return r.bad(o, err)
	}
	r.began = true // validated, as every row is
	return r.found(input, n, o)
}
