package intake

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ledgerd/ledgerd/internal/query"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/payload"
)

// DefaultKey is the column of a query with the input, unless another one is named.
const DefaultKey = "key"

// Reserved columns of a query describe the item, not the work.
const (
	columnFingerprint = "fingerprint"
	columnShardKey    = "shard_key"
	columnPriority    = "priority"
)

// Reserved are the columns that are no fields of the payload.
var Reserved = []string{columnFingerprint, columnShardKey, columnPriority}

// queryTable is a query with the use of each of its columns.
type queryTable struct {
	*query.Query
	input    int            // index of the input's column
	reserved map[int]string // reserved columns, by index
	only     bool           // the input's column is no field of the payload
}

// CheckQuery returns an error if the columns of the query are wrong.
func (s *Source) CheckQuery() error {
	_, err := s.queryTable()
	return err
}

// queryTable decides what each column of the query is for.
func (s *Source) queryTable() (*queryTable, error) {
	q := s.Query
	t := &queryTable{Query: q, input: -1, reserved: map[int]string{}}
	var names []string
	var unknown error
	for i, c := range q.Columns {
		names = append(names, c.Name)
		switch known := s.checkColumn(c.Name); {
		case c.Name == s.column():
			t.input, t.only = i, known != nil || s.Parse == nil || !s.hasField(c.Name)
		case slices.Contains(Reserved, c.Name):
			t.reserved[i] = c.Name
		case c.Name == "" || !utf8.ValidString(c.Name):
			return nil, &ArgError{Input: q.File, Reason: fmt.Sprintf("column %d has no name", i+1)}
		case known != nil && unknown == nil:
			unknown = &ArgError{Input: q.File, Reason: known.Error(), Err: known}
		}
	}
	if t.input < 0 {
		return nil, &ArgError{Input: q.File, Reason: fmt.Sprintf("has no column %q", s.column()),
			Hint: fmt.Sprintf("write it into the query: SELECT … AS %s, or name another: --key COLUMN; there are %s", s.column(),
				strings.Join(names, ", "))}
	}
	return t, unknown
}

// hasField reports whether the payload's schema names a field.
func (s *Source) hasField(name string) bool {
	_, has := s.Fields[name]
	return has
}

// query makes one item per row of the query. The line of an error is the number of the row in the result.
func (r *reader) query(ctx context.Context) bool {
	t, err := r.queryTable()
	if err != nil {
		return r.fatal(err)
	}
	n := 0
	for cells, err := range t.Rows(ctx) {
		if err != nil {
			return r.fatal(err)
		}
		n++
		if !r.queryRow(t, cells, origin{t.File, n}) {
			return false
		}
	}
	return true
}

// queryRow makes an item of a row. Columns are fields of the payload, except reserved ones.
func (r *reader) queryRow(t *queryTable, cells []any, o origin) bool {
	n := r.Template
	n.Source = cmp.Or(n.Source, t.File)
	row := make(map[string]json.RawMessage, len(cells))
	var assignments []string // for names with dots: they lead into objects
	for i, cell := range cells {
		name := t.Columns[i].Name
		if raw, isJSON := cell.(query.Raw); isJSON {
			if err := payload.CheckText([]byte(raw)); err != nil {
				return r.bad(o, fmt.Errorf("column %q: %w", name, err))
			}
		}
		if role, reserved := t.reserved[i]; reserved {
			if err := setReserved(&n, role, cell); err != nil {
				return r.bad(o, fmt.Errorf("column %q: %w", name, err))
			}
			continue
		}
		if cell == nil || i == t.input && t.only {
			continue
		}
		value, err := r.cell(name, cell)
		switch {
		case err != nil:
			return r.bad(o, fmt.Errorf("column %q: %w", name, err))
		case strings.Contains(name, "."):
			assignments = append(assignments, name+":="+string(value))
		default:
			row[name] = value
		}
	}
	if len(assignments) > 0 && r.Parse != nil {
		object, err := r.Parse(ledger.JSON(row), assignments)
		if err == nil {
			err = json.Unmarshal(object, &row)
		}
		if err != nil {
			return r.bad(o, err)
		}
	}
	input, err := query.CellText(cells[t.input])
	switch {
	case cells[t.input] == nil:
		err = errors.New("the key is NULL")
	case err != nil:
		err = fmt.Errorf("column %q: %w", t.Columns[t.input].Name, err)
	}
	if err != nil {
		return r.bad(o, err)
	}
	return r.rowOf(n, row, input, o)
}

// cell returns a value in the form of the payload: text where the schema wants text. Text for a field of another type
// is parsed by the schema.
func (r *reader) cell(name string, cell any) (json.RawMessage, error) {
	kind, named := r.Fields[name]
	text, isText := cell.(string)
	if !isText || !named || kind == TextField {
		return query.CellJSON(cell, kind == TextField)
	}
	if !utf8.ValidString(text) {
		return nil, errEncoding
	}
	object, err := r.Parse(nil, []string{name + "=" + text})
	if err != nil {
		return nil, err
	}
	at := map[string]json.RawMessage{}
	err = json.Unmarshal(object, &at)
	return at[name], err
}

// TextField is the type of fields of Source.Fields that take any text.
const TextField = "text"

func setReserved(n *ledger.NewItem, role string, cell any) error {
	if cell == nil {
		return nil
	}
	text, err := query.CellText(cell)
	if err != nil {
		return err
	}
	switch role {
	case columnFingerprint:
		n.Fingerprint = text
	case columnShardKey:
		n.ShardKey = text
	case columnPriority:
		p, err := strconv.ParseInt(text, 10, 16)
		if err != nil {
			return fmt.Errorf("%q is not a number", shorten(text))
		}
		n.Priority = int16(p)
	}
	return nil
}
