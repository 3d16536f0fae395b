package inputs

import (
	"encoding/json"
	"math"
	"strings"

	"github.com/ledgerd/ledgerd/internal/query"
	"github.com/ledgerd/ledgerd/ledger"
)

// Selection is the query as an INSERT … SELECT that makes the same items as reading its rows
// would. It is none where only a program can make them: where the key is no plain text, where a
// column says more of the item than its payload, or where the payload has to be checked row by row.
func (s *Source) Selection() (ledger.Selection, bool) {
	t, err := s.queryTable()
	if err != nil || s.Input.Type == URL || s.Input.Type == File || len(t.reserved) > 0 {
		return ledger.Selection{}, false
	}
	n := s.Template
	sel := ledger.Selection{Kind: n.Kind, Scope: n.Scope, Source: n.Source, Priority: n.Priority, Due: n.Due, Query: t.Text, Key: s.column()}
	if sel.Source == "" {
		sel.Source = t.File
	}
	set, err := s.fields()
	if err != nil {
		return sel, false
	}
	types := map[string]query.Type{}
	for i, c := range t.Columns {
		kind, named := s.Fields[c.Name]
		_, twice := set[c.Name]
		switch {
		case i == t.input && (t.only || c.Name == s.Input.Field):
			continue
		case twice, strings.Contains(c.Name, "."), c.Name == s.Input.Field,
			named && kind != TextField && c.Type != query.Integer && c.Type != query.Bool:
			return sel, false
		}
		types[c.Name] = c.Type
		sel.Fields = append(sel.Fields, ledger.Field{Name: c.Name, Column: c.Name, Text: named && kind == TextField})
	}
	if s.Input.Field != "" {
		types[sel.Key] = query.Text
		sel.Fields = append(sel.Fields, ledger.Field{Name: s.Input.Field, Column: sel.Key, Text: true, Trim: true})
	}
	for name, value := range set {
		sel.Fields = append(sel.Fields, ledger.Field{Name: name, Value: value})
	}
	return sel, s.allValid(&sel, types)
}

// odd is a text that fits no pattern and no limit that anybody would give a field.
var odd = "\t \"<é\u2028\\&>' " + strings.Repeat("x", 64<<10)

// allValid says whether the payload's schema takes whatever the columns may hold: each one is tried
// with values at the ends of its type, and absent.
func (s *Source) allValid(sel *ledger.Selection, types map[string]query.Type) bool {
	if s.Validate == nil {
		return true
	}
	plain := func(column string) any {
		switch types[column] {
		case query.Integer:
			return int64(1)
		case query.Bool:
			return true
		}
		return "x"
	}
	for column, t := range types {
		values := []any{nil, "", odd}
		switch {
		case column == sel.Key && s.Input.Field != "":
			values = []any{"x", odd}
		case t == query.Integer:
			values = []any{nil, int64(0), int64(math.MinInt64), int64(math.MaxInt64)}
		case t == query.Bool:
			values = []any{nil, true, false}
		case t != query.Text:
			values = append(values, json.Number("1e300"), int64(-1))
		}
		for _, v := range values {
			payload, err := sel.Payload(func(c string) any {
				if c == column {
					return v
				}
				return plain(c)
			})
			if err != nil || s.Validate(payload) != nil {
				return false
			}
		}
	}
	payload, err := sel.Payload(plain)
	return err == nil && s.Validate(payload) == nil
}
