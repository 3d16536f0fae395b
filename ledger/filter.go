package ledger

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Filter is the parsed form of the one filter language. Fields are joined by and; several
// values of one field by or. The zero value matches every item.
type Filter struct {
	IDs    []int64 // nil matches every item, an empty list none
	Kinds  []string
	Scopes []string
	States []State
	Agents []string // who holds the item
	Codes  []string // of the newest attempt
	Key    string   // exact
	// Sources are where items came from, any of them.
	Sources []string
	Prefix  string // of the key
	// KeyHas and ErrorHas are substrings of the key and of the newest attempt's error, case as given.
	KeyHas   string
	ErrorHas string
	// Since matches items that were added, or whose newest attempt ended, at or after it.
	Since time.Time
	// Also are filters that must match as well.
	Also []Filter
}

// IDs matches the items with these ids: none if there are none.
func IDs(ids ...int64) Filter { return Filter{IDs: append([]int64{}, ids...)} }

// filterTerms is the language, for errors and help.
const filterTerms = `id:7,8 kind:K scope:S state:dead,doubt agent:A code:http_404 key:K key:/prefix* key~part error~part since:2h`

// ParseFilter parses "state:dead kind:urlcheck error~timeout since:2h"; the terms are
// joined by and, the values of a list by or. A value with spaces is quoted
// ("error~\"not found\""). A mistake is an *InvalidError that names the term and what is
// allowed. now is what since counts back from.
func ParseFilter(s string, now time.Time) (Filter, error) {
	var f Filter
	terms, err := splitTerms(s)
	if err != nil {
		return f, err
	}
	for _, t := range terms {
		var g Filter
		if err := g.term(t, now); err != nil {
			return Filter{}, &InvalidError{Field: "where", Reason: fmt.Sprintf("%q: %v\n  terms: %s", t, err, filterTerms)}
		}
		f = f.And(g)
	}
	return f, nil
}

// splitTerms splits at spaces outside of double quotes and removes the quotes.
func splitTerms(s string) ([]string, error) {
	var terms []string
	var cur strings.Builder
	quoted, any := false, false
	for _, r := range s {
		switch {
		case r == '"':
			quoted, any = !quoted, true
		case (r == ' ' || r == '\t' || r == '\n') && !quoted:
			if any {
				terms = append(terms, cur.String())
			}
			cur.Reset()
			any = false
		default:
			cur.WriteRune(r)
			any = true
		}
	}
	if quoted {
		return nil, &InvalidError{Field: "where", Reason: fmt.Sprintf("%q: a quote is not closed", s)}
	}
	if any {
		terms = append(terms, cur.String())
	}
	return terms, nil
}

func (f *Filter) term(t string, now time.Time) error {
	i := strings.IndexAny(t, ":~")
	if i < 1 {
		return fmt.Errorf("not of the form name:value")
	}
	name, op, value := t[:i], t[i], t[i+1:]
	if value == "" && !(name == "scope" && op == ':') {
		return fmt.Errorf("has no value")
	}
	list := strings.Split(value, ",")
	switch name + string(op) {
	case "id:":
		for _, v := range list {
			id, err := strconv.ParseInt(v, 10, 64)
			if err != nil || id < 1 {
				return fmt.Errorf("%q is not an id", v)
			}
			f.IDs = append(f.IDs, id)
		}
	case "kind:":
		f.Kinds = append(f.Kinds, list...)
	case "scope:":
		f.Scopes = append(f.Scopes, list...)
	case "state:":
		for _, v := range list {
			if !slices.Contains(States, State(v)) {
				return fmt.Errorf("%q is no state: waiting ready leased dead doubt done cancelled", v)
			}
			f.States = append(f.States, State(v))
		}
	case "agent:":
		f.Agents = append(f.Agents, list...)
	case "code:":
		f.Codes = append(f.Codes, list...)
	case "key:":
		if p, ok := strings.CutSuffix(value, "*"); ok {
			f.Prefix = p
		} else {
			f.Key = value
		}
	case "key~":
		f.KeyHas = value
	case "error~":
		f.ErrorHas = value
	case "since:":
		if d, err := ParseDuration(value); err == nil {
			f.Since = now.Add(-d)
		} else if at, err := time.Parse(time.RFC3339, value); err == nil {
			f.Since = at
		} else if at, err := time.ParseInLocation("2006-01-02", value, time.Local); err == nil {
			f.Since = at
		} else {
			return fmt.Errorf("%q is neither a duration (2h, 7d) nor a time (2026-11-20, 2026-11-20T10:00:00Z)", value)
		}
	default:
		return fmt.Errorf("unknown term %q", name+string(op))
	}
	return nil
}

// And matches what both match.
func (f Filter) And(g Filter) Filter {
	if reflect.ValueOf(f).IsZero() {
		return g
	}
	f.Also = append(slices.Clone(f.Also), g)
	return f
}

// Match says whether the filter matches a record, at a moment of the database's clock. It is
// what the SQL of every store must agree with. Half a character is part of no text.
func (f Filter) Match(r *Record, now time.Time) bool {
	it := r.Item(now)
	in := func(list []string, v string) bool { return len(list) == 0 || slices.Contains(list, v) }
	switch {
	case f.IDs != nil && !slices.Contains(f.IDs, r.ID),
		!in(f.Kinds, r.Kind), !in(f.Scopes, r.Scope), !in(f.Agents, it.Agent), !in(f.Codes, it.Code),
		len(f.States) > 0 && !slices.Contains(f.States, it.State),
		f.Key != "" && f.Key != r.Key, !in(f.Sources, r.Source),
		!utf8.ValidString(f.Prefix), !utf8.ValidString(f.KeyHas), !utf8.ValidString(f.ErrorHas),
		!strings.HasPrefix(r.Key, f.Prefix), !strings.Contains(r.Key, f.KeyHas),
		!strings.Contains(it.Error, f.ErrorHas),
		!f.Since.IsZero() && r.CreatedAt.Before(f.Since) && it.EndedAt.Before(f.Since):
		return false
	}
	return !slices.ContainsFunc(f.Also, func(g Filter) bool { return !g.Match(r, now) })
}
