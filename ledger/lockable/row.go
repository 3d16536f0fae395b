package lockable

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ledgerd/ledgerd/ledger/bounds"
)

// layout maps columns to the fields of a struct that have a tag, and marks the columns of the key.
type layout struct {
	row     reflect.Type
	columns []string
	fields  [][]int // places in the struct
	keys    []int   // places in columns
}

// newLayout reads the tags of a struct.
func newLayout(row reflect.Type) (*layout, error) {
	if row.Kind() != reflect.Struct {
		return nil, invalid("row", "%s: must be a struct with tags `db:\"column\"`", row)
	}
	l := &layout{row: row}
	for _, f := range reflect.VisibleFields(row) {
		tag, tagged := f.Tag.Lookup("db")
		if !tagged || tag == "-" {
			continue
		}
		column, key := strings.CutSuffix(tag, ",key")
		switch {
		case !f.IsExported():
			return nil, invalid("row", "%s.%s: has a tag, but is not exported", row, f.Name)
		case column == "":
			return nil, invalid("row", "%s.%s: its tag names no column", row, f.Name)
		case slices.Contains(l.columns, column):
			return nil, invalid("row", "%s.%s: column %s has a field already", row, f.Name, column)
		case throughPointer(row, f.Index):
			return nil, invalid("row", "%s.%s: is in an embedded pointer; embed the struct itself", row, f.Name)
		}
		if key {
			l.keys = append(l.keys, len(l.columns))
		}
		l.columns = append(l.columns, column)
		l.fields = append(l.fields, f.Index)
	}
	if len(l.keys) == 0 {
		return nil, invalid("row", "%s: no field has a tag `db:\"column,key\"`; each column of the table's key needs one",
			row)
	}
	return l, nil
}

func throughPointer(row reflect.Type, index []int) bool {
	for _, i := range index[:len(index)-1] {
		row = row.Field(i).Type
		if row.Kind() == reflect.Pointer {
			return true
		}
	}
	return false
}

func (l *layout) keyNames() []string {
	names := make([]string, len(l.keys))
	for i, k := range l.keys {
		names[i] = l.columns[k]
	}
	return names
}

// key returns the values of a row's key columns.
func (l *layout) key(row reflect.Value) []any {
	values := make([]any, len(l.keys))
	for i, k := range l.keys {
		values[i] = row.FieldByIndex(l.fields[k]).Interface()
	}
	return values
}

// into returns pointers into a row for Scan. SQLite keeps times as text or numbers. Its driver converts them to times
// only if it knows the type of the column.
func (l *layout) into(row reflect.Value, sqlite bool) []any {
	into := make([]any, len(l.fields))
	for i, index := range l.fields {
		into[i] = row.FieldByIndex(index).Addr().Interface()
		if sqlite {
			into[i] = timely(into[i])
		}
	}
	return into
}

// timely returns a scanner for a pointer to a time, see moment. It returns any other pointer unchanged.
func timely(into any) any {
	switch at := into.(type) {
	case *time.Time:
		return &moment{set: func(t time.Time) { *at = t }, null: func() error { return fmt.Errorf("NULL for a time.Time") }}
	case **time.Time:
		return &moment{set: func(t time.Time) { *at = &t }, null: func() error { *at = nil; return nil }}
	case *sql.NullTime:
		return &moment{set: func(t time.Time) { *at = sql.NullTime{Time: t, Valid: true} }, null: func() error {
			*at = sql.NullTime{}
			return nil
		}}
	}
	return into
}

// moment scans a time from text in one of forms, or from a number of seconds since 1970.
type moment struct {
	set  func(time.Time)
	null func() error
}

// forms are the text forms of times in SQLite's tables, of its own functions and of its drivers.
var forms = []string{
	"2006-01-02 15:04:05.999999999", "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00",
	time.RFC3339Nano, "2006-01-02 15:04:05.999999999 -0700 MST", "2006-01-02 15:04:05.999999999Z07",
	"2006-01-02 15:04", "2006-01-02"}

// Scan implements [sql.Scanner].
func (m *moment) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		return m.null()
	case time.Time:
		m.set(v)
		return nil
	case int64:
		m.set(time.Unix(v, 0).UTC())
		return nil
	case string:
		for _, form := range forms {
			if t, err := time.Parse(form, v); err == nil {
				m.set(t)
				return nil
			}
		}
	}
	return fmt.Errorf("%v: not a time", v)
}

// agentID checks an agent and returns its value for the locked_by column.
func agentID(agent any, c class) (any, error) {
	if v, ok := agent.(driver.Valuer); ok {
		value, err := v.Value()
		if err != nil {
			return nil, invalid("agent", "%v", err)
		}
		agent = value
	}
	switch v := reflect.ValueOf(agent); {
	case v.Kind() == reflect.String:
		s := v.String()
		switch {
		case c == number:
			return nil, invalid("agent", "%q is text, and the column holds integers", s)
		case s == "" || len(s) > bounds.MaxAgent || !utf8.ValidString(s) || strings.ContainsRune(s, 0):
			return nil, invalid("agent", "%q: must have 1 … %d bytes of UTF-8 without NUL", s, bounds.MaxAgent)
		}
		return s, nil
	case v.CanInt() || v.CanUint() && v.Uint() <= math.MaxInt64:
		if c == text || c == uuids {
			return nil, invalid("agent", "%v is a number, and the column holds text", agent)
		}
		if v.CanInt() {
			return v.Int(), nil
		}
		return int64(v.Uint()), nil
	}
	return nil, invalid("agent", "%T: must be text or an integer", agent)
}
