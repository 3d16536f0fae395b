package inputs

import (
	"math"
	"sort"
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
	types, own := map[string]query.Type{}, false
	for i, c := range t.Columns {
		kind, named := s.Fields[c.Name]
		_, twice := set[c.Name]
		switch {
		case i == t.input && (t.only || c.Name == s.Input.Field):
			continue
		case twice, strings.Contains(c.Name, "."),
			named && kind != TextField && c.Type != query.Integer && c.Type != query.Bool:
			return sel, false
		}
		own = own || c.Name == s.Input.Field
		types[c.Name] = c.Type
		sel.Fields = append(sel.Fields, ledger.Field{Name: c.Name, Column: c.Name, Text: named && kind == TextField})
	}
	if s.Input.Field != "" && !own {
		types[sel.Key] = query.Text
		sel.Fields = append(sel.Fields, ledger.Field{Name: s.Input.Field, Column: sel.Key, Text: true, Trim: true})
	}
	for name, value := range set {
		sel.Fields = append(sel.Fields, ledger.Field{Name: name, Value: value})
	}
	return sel, s.allValid(&sel, types)
}

// odd is a text that fits no pattern and no list of values that anybody would give a field.
const odd = "\t<é \"\u2028\\&>' 7"

// maxProbe is the longest text that is tried, in characters.
const maxProbe = 128 << 10

// allValid says whether the payload's schema takes whatever the columns may hold. Each one is tried
// with values at the ends of its type, and absent. That a column must be there, or how long its
// text may be, are rules that a database can keep: they are put into its field.
func (s *Source) allValid(sel *ledger.Selection, types map[string]query.Type) bool {
	if s.Validate == nil {
		return true
	}
	usual := func(column string) any {
		switch types[column] {
		case query.Integer:
			return int64(1)
		case query.Bool:
			return true
		}
		return "x"
	}
	for i := range sel.Fields {
		f := &sel.Fields[i]
		if f.Value != nil {
			continue
		}
		valid := func(v any) bool {
			payload, err := sel.Payload(func(c string) any {
				if c == f.Column {
					return v
				}
				return usual(c)
			})
			return err == nil && s.Validate(payload) == nil
		}
		t := types[f.Column]
		strange := odd
		if text := f.Text || t == query.Text || t == query.Any; text && !valid(strings.Repeat("é", maxProbe)) {
			f.MaxChars = sort.Search(maxProbe, func(n int) bool { return !valid(strings.Repeat("é", n+1)) })
			if f.MaxChars == 0 { // a pattern, or a list of values
				return false
			}
			strange = string([]rune(odd)[:min(f.MaxChars, len([]rune(odd)))])
		}
		values := []any{"", strange}
		switch {
		case f.Trim: // the key, which is not blank
			values = []any{strange}
		case t == query.Integer && !f.Text:
			values = []any{int64(0), int64(math.MinInt64), int64(math.MaxInt64)}
		case t == query.Bool && !f.Text:
			values = []any{true, false}
		case t == query.Any && !f.Text:
			values = append(values, 1e300, int64(-1))
		}
		for _, v := range values {
			if !valid(v) {
				return false
			}
		}
		f.Required = !f.Trim && !valid(nil)
	}
	return true
}
