// Package filter is the language in which people choose items: "state:dead kind:urlcheck error~timeout since:2h".
package filter

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/recurrence"
)

// Error is a mistake in a filter, and where it is. It matches [ledger.ErrInvalid].
type Error struct {
	Filter string
	Column int // of the term, in characters from 1
	Length int // of the term, in characters
	Reason string
	Word   string   // a word that is not in Known; "" if the mistake is another one
	Known  []string // the words that may stand in its place
}

func (e *Error) Error() string {
	return fmt.Sprintf("where: column %d of %q: %s\n  terms: %s", e.Column, e.Filter, e.Reason, Terms)
}
func (e *Error) Is(target error) bool { return target == ledger.ErrInvalid }

// Parse parses "state:dead kind:urlcheck error~timeout since:2h"; the terms are
// joined by and, the values of a list by or. A value with spaces is quoted
// ("error~\"not found\""). A mistake is a *Error. now is what durations count back from.
//
// since:T matches items that were added, or whose newest attempt ended, at T or later; until:T those for which both
// were before T. added:T matches items added at T or later, added:T1..T2 those added from T1 until just before T2:
// added:2026-11-01..2026-11-08. due:, failing: and recovered: take the same forms. They compare the time when an
// unfinished item is due, when an item began to fail, and when it stopped failing.
func Parse(s string, now time.Time) (ledger.Filter, error) {
	var f ledger.Filter
	terms, err := splitTerms(s)
	if err != nil {
		return f, err
	}
	for n, t := range terms {
		if n == maxTerms {
			return ledger.Filter{}, &Error{Filter: s, Column: t.column, Length: t.length,
				Reason: fmt.Sprintf("more than %d terms", maxTerms)}
		}
		var g ledger.Filter
		if err := parseTerm(&g, t.text, now); err != nil {
			bad := &Error{Filter: s, Column: t.column, Length: t.length, Reason: err.Error()}
			if w, ok := err.(*wordError); ok {
				bad.Word, bad.Known = w.word, w.known
			}
			return ledger.Filter{}, bad
		}
		f = f.And(g)
	}
	return f, nil
}

// maxTerms bounds the terms of a filter: a database takes a condition only up to some depth.
const maxTerms = 200

// term is one condition as it was typed, without its quotes.
type term struct {
	text           string
	column, length int // in characters, with the quotes
}

// splitTerms splits at spaces outside of double quotes and removes the quotes.
func splitTerms(s string) ([]term, error) {
	var terms []term
	var text strings.Builder
	column, start, quote := 0, 0, 0 // start: column of the term, quote: of its open quote; 0: none
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
		start = cmp.Or(start, column)
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
		return nil, &Error{Filter: s, Column: quote, Length: 1, Reason: "a quote is not closed"}
	}
	column++
	flush()
	return terms, nil
}

// wordError reports a word that is none of the known ones.
type wordError struct {
	word  string
	known []string
	text  string
}

func (e *wordError) Error() string { return e.text }

// parseTerm adds the condition of a term to a filter.
func parseTerm(f *ledger.Filter, t string, now time.Time) error {
	i := strings.IndexAny(t, ":~<>")
	if i > 0 {
		if of, path, found := strings.Cut(t[:i], "."); found && (of == "payload" || of == "output") {
			return parseField(f, of, path, t[i:])
		}
	}
	if i < 1 {
		if i < 0 { // perhaps a state
			return &wordError{t, stateTerms(), fmt.Sprintf("%q is not of the form name:value", t)}
		}
		return fmt.Errorf("%q is not of the form name:value", t)
	}
	name, value := t[:i+1], t[i+1:]
	d := slices.IndexFunc(definitions, func(d definition) bool { return d.name == name && d.set != nil })
	if d < 0 {
		return &wordError{name, Names, fmt.Sprintf("unknown term %q", name)}
	}
	if value == "" && name != "scope:" {
		return fmt.Errorf("%s has no value", name)
	}
	return definitions[d].set(f, value, now)
}

func stateTerms() (terms []string) {
	for _, s := range ledger.States {
		terms = append(terms, "state:"+string(s))
	}
	return terms
}

// span parses FROM, FROM..TO or ..TO.
func span(value string, now time.Time) (from, to time.Time, err error) {
	first, last, two := strings.Cut(value, "..")
	if first != "" || !two {
		from, err = Moment(first, now)
	}
	if two && err == nil {
		to, err = Moment(last, now)
	}
	return from, to, err
}

// Moment parses the value of since: and until:, a duration before now or a time.
func Moment(s string, now time.Time) (time.Time, error) {
	if d, err := recurrence.ParseDuration(s); err == nil {
		return now.Add(-d), nil
	}
	if at, err := recurrence.ParseTime(s); err == nil {
		return at, nil
	}
	return time.Time{}, fmt.Errorf("%q is neither a duration (2h, 7d) nor a time (2026-11-20, 2026-11-20T10:00, "+
		"2026-11-20T10:00:00Z)", s)
}

// parseField parses a term about a field: of is "payload" or "output", condition an operator and its values.
func parseField(f *ledger.Filter, of, path, condition string) error {
	t := ledger.FieldTerm{Of: of, Path: strings.Split(path, "."), Op: condition[:1], Values: []string{condition[1:]}}
	switch {
	case slices.Contains(t.Path, ""):
		return fmt.Errorf("%s.%s names no field: %s.NAME%s…", of, path, of, t.Op)
	case t.Op == ":" && strings.ContainsAny(t.Values[0][:min(1, len(t.Values[0]))], "<>~"):
		return fmt.Errorf("%s.%s:%s compares with nothing: %s.%s%s, without the colon", of, path, t.Values[0], of, path,
			t.Values[0])
	case condition[1:] == "":
		return fmt.Errorf("%s.%s%s has no value", of, path, t.Op)
	case t.Op == ":":
		t.Values = strings.Split(t.Values[0], ",")
	case t.Op == ">" || t.Op == "<":
		if _, err := strconv.ParseFloat(t.Values[0], 64); err != nil {
			return fmt.Errorf("%q is not a number", t.Values[0])
		}
	}
	f.Fields = append(f.Fields, t)
	return nil
}
