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
	Rounds []RoundState
	Agents []string // who holds the item
	Codes  []string // of the newest attempt
	// Outcomes of the newest attempt that ended, any of them.
	Outcomes []Outcome
	Key      string // exact
	// Sources are where items came from, any of them. The name of a list stands for all its lines: "links" also
	// for "links:17".
	Sources []string
	Prefix  string // of the key
	// KeyHas and ErrorHas are substrings of the key and of the newest attempt's error, case as given.
	KeyHas   string
	ErrorHas string
	// Priorities of unfinished items; finished ones have none.
	Priorities []int16
	// Since matches items that were added, or whose newest attempt ended, at or after it; Until those
	// of which neither was.
	Since, Until time.Time
	// AddedFrom and AddedTo match items that were added at or after the one, and before the other.
	AddedFrom, AddedTo time.Time
	// Above and UpTo bound the ids: above the one, up to the other; 0 is no bound.
	Above, UpTo int64
	// Fields are conditions on what stands in the payload and in the output. A store leaves them to
	// this package: what is in there is anybody's, and may be no JSON.
	Fields []FieldTerm
	// Also are filters that must match as well.
	Also []Filter
}

// IDs matches the items with these ids: none if there are none.
func IDs(ids ...int64) Filter { return Filter{IDs: append([]int64{}, ids...)} }

// FilterTerms shows all terms of the language, for errors and help.
const FilterTerms = `id:7,8 kind:K scope:S state:dead,doubt round:failed agent:A source:S outcome:failed code:http_404 priority:-1,0 key:K key:/prefix* key~part error~part since:2h until:2026-11-20 added:7d output.status:404 payload.name~part payload.size>100`

// FilterNames are the names of terms with what follows them.
var FilterNames = []string{"id:", "kind:", "scope:", "state:", "round:", "agent:", "source:", "outcome:", "code:", "priority:", "key:", "key~", "error~", "since:", "until:", "added:", "output.", "payload."}

// FilterError is a mistake in a filter, and where it is. It matches [ErrInvalid].
type FilterError struct {
	Filter string
	Column int // of the term, in characters from 1
	Length int // of the term, in characters
	Reason string
	Word   string   // what is none of Known; "" if the mistake is another
	Known  []string // what it may have been meant for
}

func (e *FilterError) Error() string {
	return fmt.Sprintf("where: column %d of %q: %s\n  terms: %s", e.Column, e.Filter, e.Reason, FilterTerms)
}
func (e *FilterError) Is(target error) bool { return target == ErrInvalid }

// ParseFilter parses "state:dead kind:urlcheck error~timeout since:2h"; the terms are
// joined by and, the values of a list by or. A value with spaces is quoted
// ("error~\"not found\""). A mistake is a *FilterError. now is what durations count back from.
//
// since: and until: are about when something last happened to an item: when its newest attempt
// ended, or if none has, when it was added. since: is at or after, until: is before. added: is
// about adding, at or after a time, or from one to before another: added:2026-11-01..2026-11-08.
func ParseFilter(s string, now time.Time) (Filter, error) {
	var f Filter
	terms, err := splitTerms(s)
	if err != nil {
		return f, err
	}
	for _, t := range terms {
		var g Filter
		if err := g.term(t.text, now); err != nil {
			bad := &FilterError{Filter: s, Column: t.column, Length: t.length, Reason: err.Error()}
			if w, ok := err.(*wordError); ok {
				bad.Word, bad.Known = w.word, w.known
			}
			return Filter{}, bad
		}
		f = f.And(g)
	}
	return f, nil
}

// term is one condition as it was typed, without its quotes.
type term struct {
	text           string
	column, length int // in characters, with the quotes
}

// splitTerms splits at spaces outside of double quotes and removes the quotes.
func splitTerms(s string) ([]term, error) {
	var terms []term
	var text strings.Builder
	column, start, quote := 0, 0, 0 // start: of the term, 0 outside; quote: where it was opened, 0 outside
	flush := func() {
		if start > 0 {
			terms = append(terms, term{text.String(), start, column - start})
		}
		text.Reset()
		start = 0
	}
	for _, r := range s {
		column++
		if space := r == ' ' || r == '\t' || r == '\n'; space && quote == 0 {
			flush()
			continue
		}
		if start == 0 {
			start = column
		}
		switch {
		case r != '"':
			text.WriteRune(r)
		case quote == 0:
			quote = column
		default:
			quote = 0
		}
	}
	if quote > 0 {
		return nil, &FilterError{Filter: s, Column: quote, Length: 1, Reason: "a quote is not closed"}
	}
	column++
	flush()
	return terms, nil
}

// wordError is a word that is none of those known.
type wordError struct {
	word  string
	known []string
	text  string
}

func (e *wordError) Error() string { return e.text }

func (f *Filter) term(t string, now time.Time) error {
	i := strings.IndexAny(t, ":~<>")
	if i > 0 {
		if of, path, found := strings.Cut(t[:i], "."); found && (of == OfPayload || of == OfOutput) {
			return f.field(of, path, t[i:])
		}
	}
	if i < 1 {
		if i < 0 { // perhaps a state
			return &wordError{t, stateTerms(), fmt.Sprintf("%q is not of the form name:value", t)}
		}
		return fmt.Errorf("%q is not of the form name:value", t)
	}
	name, value := t[:i+1], t[i+1:]
	if !slices.Contains(FilterNames, name) {
		return &wordError{name, FilterNames, fmt.Sprintf("unknown term %q", name)}
	}
	if value == "" && name != "scope:" {
		return fmt.Errorf("%s has no value", name)
	}
	switch name {
	case "key:":
		if p, ok := strings.CutSuffix(value, "*"); ok {
			f.Prefix = p
		} else {
			f.Key = value
		}
	case "source:":
		f.Sources = []string{value} // also with a comma, which the name of a sample has
	case "key~":
		f.KeyHas = value
	case "error~":
		f.ErrorHas = value
	case "since:", "until:", "added:":
		return f.when(name, value, now)
	default:
		return f.list(name, strings.Split(value, ","))
	}
	return nil
}

func stateTerms() (terms []string) {
	for _, s := range States {
		terms = append(terms, "state:"+string(s))
	}
	return terms
}

// list takes a term that may have several values.
func (f *Filter) list(name string, values []string) error {
	for _, v := range values {
		switch name {
		case "id:":
			id, err := strconv.ParseInt(v, 10, 64)
			if err != nil || id < 1 {
				return fmt.Errorf("%q is not an id", v)
			}
			f.IDs = append(f.IDs, id)
		case "state:":
			if !slices.Contains(States, State(v)) {
				return unknownWord(v, "state", States)
			}
			f.States = append(f.States, State(v))
		case "round:":
			if !slices.Contains(RoundStates, RoundState(v)) {
				return unknownWord(v, "state of a round", RoundStates)
			}
			f.Rounds = append(f.Rounds, RoundState(v))
		case "priority:":
			p, err := strconv.ParseInt(v, 10, 16)
			if err != nil || p < MinPriority || p > MaxPriority {
				return fmt.Errorf("%q is no priority: %d … %d", v, MinPriority, MaxPriority)
			}
			f.Priorities = append(f.Priorities, int16(p))
		case "kind:":
			f.Kinds = append(f.Kinds, v)
		case "scope:":
			f.Scopes = append(f.Scopes, v)
		case "agent:":
			f.Agents = append(f.Agents, v)
		case "code:":
			f.Codes = append(f.Codes, v)
		case "outcome:":
			if !slices.Contains(Outcomes, Outcome(v)) {
				return unknownWord(v, "outcome", Outcomes)
			}
			f.Outcomes = append(f.Outcomes, Outcome(v))
		}
	}
	return nil
}

// listOf is the list of which a source is a line: "links" of "links:17"; else the source itself.
func listOf(source string) string {
	if list, line := strings.CutSuffix(strings.TrimRight(source, "0123456789"), ":"); line {
		return list
	}
	return source
}

// unknownWord is the error that v is none of those of its sort.
func unknownWord[T ~string](v, sort string, all []T) error {
	known := make([]string, len(all))
	for i, s := range all {
		known[i] = string(s)
	}
	return &wordError{v, known, fmt.Sprintf("%q is no %s: %s", v, sort, strings.Join(known, " "))}
}

// when takes a term about time.
func (f *Filter) when(name, value string, now time.Time) (err error) {
	switch name {
	case "since:":
		f.Since, err = moment(value, now)
	case "until:":
		f.Until, err = moment(value, now)
	case "added:":
		from, to, span := strings.Cut(value, "..")
		if from != "" || !span {
			f.AddedFrom, err = moment(from, now)
		}
		if span && err == nil {
			f.AddedTo, err = moment(to, now)
		}
	}
	return err
}

// moment is a time, or how long ago.
func moment(s string, now time.Time) (time.Time, error) {
	if d, err := ParseDuration(s); err == nil {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04", "2006-01-02"} {
		if at, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is neither a duration (2h, 7d) nor a time (2026-11-20, 2026-11-20T10:00, 2026-11-20T10:00:00Z)", s)
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
// what the SQL of every store must agree with, but for Fields. Half a character is part of no text. A
// filter that asks for the output needs a record that was read with it.
func (f Filter) Match(r *Record, now time.Time) bool {
	it := r.Item(now)
	in := func(list []string, v string) bool { return len(list) == 0 || slices.Contains(list, v) }
	switch {
	case f.IDs != nil && !slices.Contains(f.IDs, r.ID),
		!in(f.Kinds, r.Kind), !in(f.Scopes, r.Scope), !in(f.Agents, it.Agent), !in(f.Codes, it.Code),
		len(f.States) > 0 && !slices.Contains(f.States, it.State),
		len(f.Rounds) > 0 && !slices.Contains(f.Rounds, it.RoundState),
		len(f.Outcomes) > 0 && !slices.Contains(f.Outcomes, it.Outcome),
		r.ID <= f.Above, f.UpTo > 0 && r.ID > f.UpTo,
		f.Key != "" && f.Key != r.Key, !in(f.Sources, r.Source) && !in(f.Sources, listOf(r.Source)),
		!utf8.ValidString(f.Prefix), !utf8.ValidString(f.KeyHas), !utf8.ValidString(f.ErrorHas),
		!strings.HasPrefix(r.Key, f.Prefix), !strings.Contains(r.Key, f.KeyHas),
		!strings.Contains(it.Error, f.ErrorHas),
		len(f.Priorities) > 0 && (r.Work == nil || !slices.Contains(f.Priorities, r.Work.Priority)),
		!f.Since.IsZero() && r.CreatedAt.Before(f.Since) && it.EndedAt.Before(f.Since),
		!f.Until.IsZero() && !(r.CreatedAt.Before(f.Until) && it.EndedAt.Before(f.Until)),
		!f.AddedFrom.IsZero() && r.CreatedAt.Before(f.AddedFrom),
		!f.AddedTo.IsZero() && !r.CreatedAt.Before(f.AddedTo),
		!f.matchFields(r.Payload, r.Output):
		return false
	}
	return !slices.ContainsFunc(f.Also, func(g Filter) bool { return !g.Match(r, now) })
}
