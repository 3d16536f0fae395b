// Package report writes the output of the command line: rows as a table, JSON, JSON lines or CSV,
// and failures grouped by cause.
//
// A row is a struct; its json tags are the names of the columns in every format. Tables are for people: local time, no
// borders, cut to the terminal. The other formats are for programs: times in UTC with microseconds, nothing cut.
//
// Text from outside (a path, an error that quotes a web page) cannot act on the terminal of its reader. Control
// characters and marks of direction are escaped: in JSON as \uXXXX with the same value, in other formats visibly. In
// CSV a cell that a spreadsheet would calculate has an apostrophe before it. Only CSV with Raw has the text as it is.
package report

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/sdk/settings"
)

// Format of output.
type Format string

// The formats.
const (
	Table Format = "table"
	JSON  Format = "json"  // one value at the end
	JSONL Format = "jsonl" // one object per line, as it happens
	CSV   Format = "csv"
)

// Formats are all formats.
var Formats = []Format{Table, JSON, JSONL, CSV}

// Printer writes to one output in one format.
type Printer struct {
	Out     io.Writer
	Format  Format
	Columns []string // of --columns; nil: the columns that the command chooses, in JSON all
	Raw     bool     // CSV has text as it is, for programs
	Excel   bool     // CSV has a byte order mark, semicolons and decimal commas, as Excel in most of Europe reads it
	Width   int      // of the terminal, in cells; 0 means that lines are not cut
	// ShortKey shortens a key in tables, such as a path below the working directory; nil: as it is.
	ShortKey func(key string) string
}

// To returns a printer of tables to another output.
func (p *Printer) To(out io.Writer) *Printer {
	return &Printer{Out: out, Format: Table, ShortKey: p.ShortKey}
}

// Time is a time in a row. In JSON it is RFC 3339 in UTC with microseconds, null if zero.
type Time time.Time

// MarshalJSON implements json.Marshaler.
func (t Time) MarshalJSON() ([]byte, error) {
	if time.Time(t).IsZero() {
		return []byte("null"), nil
	}
	return []byte(`"` + t.String() + `"`), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Time) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, (*time.Time)(t)) }

// String is the time as JSON and CSV have it, "" if zero.
func (t Time) String() string {
	if time.Time(t).IsZero() {
		return ""
	}
	return time.Time(t).UTC().Format("2006-01-02T15:04:05.000000Z")
}

// Duration is how long something took, in a row: seconds with milliseconds. 0 means that it is not known, and is null.
type Duration time.Duration

// MarshalJSON implements json.Marshaler.
func (d Duration) MarshalJSON() ([]byte, error) {
	if d == 0 {
		return []byte("null"), nil
	}
	return []byte(d.String()), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *Duration) UnmarshalJSON(text []byte) error {
	var seconds float64
	err := json.Unmarshal(text, &seconds) // null is 0
	*d = Duration(math.Round(seconds * float64(time.Second)))
	return err
}

// String is the number of seconds as all formats have it, "" if it is not known.
func (d Duration) String() string {
	if d == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(time.Duration(d).Round(time.Millisecond).Milliseconds())/1000, 'f', -1, 64)
}

// column is a column of rows of one type.
type column struct {
	name  string
	index []int    // of the field in the struct
	path  []string // into the JSON of the field: "status" of output.status
	table tableColumn
}

// columns returns the columns of these names, all if names is nil. A name may lead into a field that holds JSON:
// "output.status". The endings "_at", "_seen" and "_s" may be left out.
func columns(t reflect.Type, names []string) ([]column, error) {
	var all []column
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || !f.IsExported() || name == "" || name == "-" {
			continue
		}
		all = append(all, column{name: name, index: f.Index, table: tableColumnOf(name, f)})
	}
	if names == nil {
		return all, nil
	}
	var chosen []column
	for _, n := range names {
		top, below, nested := strings.Cut(n, ".")
		i := slices.IndexFunc(all, func(c column) bool {
			return c.name == top || c.name == top+"_at" || c.name == top+"_seen" || c.name == top+"_s"
		})
		if i < 0 {
			known := make([]string, len(all))
			for i, c := range all {
				known[i] = c.name
			}
			return nil, &ColumnError{n, known}
		}
		c := all[i]
		if n != c.name {
			c.name, c.table.heading = n, n
		}
		if nested {
			c.path = strings.Split(below, ".")
		}
		chosen = append(chosen, c)
	}
	return chosen, nil
}

// tableColumnOf returns how tables write a field. People look for keys and messages first, so these are cut last. The
// tag spare is tableColumn.spare.
func tableColumnOf(name string, f reflect.StructField) tableColumn {
	isMain := name == "key" || name == "error" || name == "message"
	spare, _ := strconv.Atoi(f.Tag.Get("spare")) // 0 without the tag
	return tableColumn{heading: cmp.Or(f.Tag.Get("heading"), name), whole: f.Type == reflect.TypeFor[Time](),
		main: isMain, middle: isMain, spare: spare}
}

// key reports whether the column holds keys of items: paths and URLs.
func (c column) key() bool { return c.name == "key" }

// ColumnError is a column that the rows do not have.
type ColumnError struct {
	Name  string
	Known []string
}

func (e *ColumnError) Error() string {
	return fmt.Sprintf("no column %q; there are %s", e.Name, strings.Join(e.Known, ", "))
}

// Advice returns the error for programs and people.
func (e *ColumnError) Advice() (code, message, hint string) {
	if near := settings.Suggest(e.Name, e.Known); near != "" {
		hint = "did you mean " + near + "?"
	}
	return "unknown_column", e.Error(), hint
}

// text returns the value of a column for tables and CSV.
func (c column) text(row reflect.Value, p *Printer) string {
	v := row.FieldByIndex(c.index)
	if c.path != nil {
		raw, err := json.Marshal(v.Interface())
		if err != nil {
			return ""
		}
		return below(raw, c.path)
	}
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
	}
	switch x := v.Interface().(type) {
	case Time:
		if p.Format == Table {
			return Brief(time.Time(x))
		}
		return x.String()
	case Duration:
		if p.Excel { // where lists have semicolons, numbers have a decimal comma
			return strings.Replace(x.String(), ".", ",", 1)
		}
		return x.String()
	case Bytes:
		if len(x) == 0 {
			return ""
		}
	case []string:
		if p.Format == Table || x == nil {
			return strings.Join(x, ", ")
		}
	}
	switch v.Kind() {
	case reflect.String:
		return v.String()
	case reflect.Int, reflect.Int64, reflect.Int16:
		return strconv.FormatInt(v.Int(), 10)
	case reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'f', -1, 64)
	}
	raw, _ := json.Marshal(v.Interface())
	return string(raw)
}

// Brief returns a time as tables show it: today without the date, else date, hour and minute; "" if zero.
func Brief(t time.Time) string { return brief(t, time.Now()) }

func brief(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	t = t.Local()
	if t.Format(time.DateOnly) == now.Local().Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format("2006-01-02 15:04")
}

// Local returns a time for a sentence, "" if zero.
func Local(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// follow returns the value at a path in JSON, nil if there is none.
func follow(raw json.RawMessage, path []string) json.RawMessage {
	for _, name := range path {
		var fields map[string]json.RawMessage
		if json.Unmarshal(raw, &fields) != nil {
			return nil
		}
		raw = fields[name]
	}
	return raw
}

// below returns the value at a path in JSON as text, "" if there is none.
func below(raw json.RawMessage, path []string) string {
	raw = follow(raw, path)
	var text string
	if json.Unmarshal(raw, &text) == nil { // also null: it is ""
		return text
	}
	return string(raw)
}

// Rows writes rows one after the other.
type Rows[T any] struct {
	p       *Printer
	columns []column
	table   *table
	csv     *csv.Writer
	n       int // rows so far
}

// NewRows begins the output. Without Printer.Columns, tables have tableColumns and CSV has csvColumns; nil means all.
// JSON has all fields, or Printer.Columns.
func NewRows[T any](p *Printer, tableColumns, csvColumns []string) (*Rows[T], error) {
	r := &Rows[T]{p: p}
	names := p.Columns
	if names == nil && p.Format == Table {
		names = tableColumns
	} else if names == nil && p.Format == CSV {
		names = csvColumns
	}
	var err error
	if r.columns, err = columns(reflect.TypeFor[T](), names); err != nil {
		return nil, err
	}
	switch p.Format {
	case Table:
		r.table = &table{tidy: p.Columns == nil}
		for _, c := range r.columns {
			if p.Columns != nil || c.path != nil {
				c.table.spare = 0
			}
			r.table.columns = append(r.table.columns, c.table)
		}
	case CSV:
		header := make([]string, len(r.columns))
		for i, c := range r.columns {
			header[i] = c.name
		}
		r.csv = csv.NewWriter(p.Out)
		if p.Excel {
			r.csv.Comma = ';'
			if _, err = io.WriteString(p.Out, "\ufeff"); err != nil {
				return nil, err
			}
		}
		err = r.csv.Write(header)
	case JSON:
		_, err = io.WriteString(p.Out, "[")
	}
	return r, err
}

// Write adds a row. A table is written at Close, all other formats at once.
func (r *Rows[T]) Write(row T) error {
	r.n++
	switch r.p.Format {
	case JSON, JSONL:
		text, err := r.marshal(row)
		if err != nil {
			return err
		}
		lead := ""
		if r.p.Format == JSON {
			text = bytes.TrimSuffix(text, []byte("\n"))
			if lead = ",\n "; r.n == 1 {
				lead = "\n "
			}
		}
		_, err = io.WriteString(r.p.Out, lead+string(text))
		return err
	}
	cells := make([]string, len(r.columns))
	for i, c := range r.columns {
		cells[i] = c.text(reflect.ValueOf(row), r.p)
		if r.p.Format == Table && c.key() && r.p.ShortKey != nil {
			cells[i] = r.p.ShortKey(cells[i])
		}
	}
	if r.p.Format == Table {
		r.table.add(cells)
		return nil
	}
	if !r.p.Raw {
		for i := range cells {
			if cells[i] = cell(cells[i]); r.p.Excel {
				cells[i] = cellWithCommas(cells[i])
			}
		}
	}
	if err := r.csv.Write(cells); err != nil {
		return err
	}
	r.csv.Flush()
	return r.csv.Error()
}

// marshal returns a row as JSON: all fields, or Printer.Columns in their order.
func (r *Rows[T]) marshal(row T) ([]byte, error) {
	if r.p.Columns == nil {
		return Marshal(row)
	}
	var b bytes.Buffer
	lead := "{"
	for _, c := range r.columns {
		value, err := Marshal(reflect.ValueOf(row).FieldByIndex(c.index).Interface())
		if err != nil {
			return nil, err
		}
		name, _ := json.Marshal(c.name) // a string is always JSON
		fmt.Fprintf(&b, "%s%s:%s", lead, name, cmp.Or(string(follow(bytes.TrimSpace(value), c.path)), "null"))
		lead = ","
	}
	b.WriteString("}\n")
	return b.Bytes(), nil
}

// Close ends the output. A table without rows is empty output.
func (r *Rows[T]) Close() error {
	switch r.p.Format {
	case JSON:
		end := "\n]\n"
		if r.n == 0 {
			end = "]\n"
		}
		_, err := io.WriteString(r.p.Out, end)
		return err
	case Table:
		return r.table.write(r.p.Out, r.p.Width)
	case CSV:
		r.csv.Flush()
		return r.csv.Error()
	}
	return nil
}

// List writes all rows and returns how many there were.
func List[T any](p *Printer, rows iter.Seq2[T, error], tableColumns ...string) (int, error) {
	w, err := NewRows[T](p, tableColumns, nil)
	if err != nil {
		return 0, err
	}
	for row, err := range rows {
		if err != nil {
			return w.n, err
		}
		if err := w.Write(row); err != nil {
			return w.n, err
		}
	}
	return w.n, w.Close()
}

// Each yields rows for List.
func Each[T any](rows []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, row := range rows {
			if !yield(row, nil) {
				return
			}
		}
	}
}

// Object writes one value as JSON: indented if the format is JSON, else on one line.
func (p *Printer) Object(v any) error {
	text, err := Marshal(v)
	if err != nil {
		return err
	}
	if p.Format == JSON {
		text = Indented(text)
	}
	_, err = p.Out.Write(text)
	return err
}
