// Package where writes a [ledger.Filter] as the WHERE clause of a store's SELECT. Both
// databases share it, so that a filter means the same on them; they differ in how parameters,
// lists and times are written, and in nothing else.
//
// The clause speaks of three aliases that the SELECT must have:
//
//	FROM ledger_items i
//	LEFT JOIN ledger_backlog b ON b.item_id = i.id
//	LEFT JOIN ledger_attempts a ON a.item_id = i.id AND a.attempt = (the item's newest attempt)
//
// User text is always a parameter, and substrings are looked for with a function: no character
// of it has a meaning of its own, as it would with LIKE.
package where

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ledgerd/ledgerd/ledger"
)

// Dialect is how a database writes what the other writes differently.
type Dialect struct {
	param string                // what precedes the number of a parameter
	has   string                // function (text, part) that is above 0 if text contains part
	list  string                // condition that a column is in a list: its name and the parameter go in
	array func(values any) any  // a list as an argument
	time  func(t time.Time) any // a time as an argument
}

// The dialects of the two stores.
var (
	Postgres = Dialect{param: "$", has: "strpos", list: "%s = ANY(%s)",
		array: func(values any) any { return values }, time: func(t time.Time) any { return t }}
	SQLite = Dialect{param: "?", has: "instr", list: "%s IN (SELECT value FROM json_each(%s))",
		array: jsonArray, time: func(t time.Time) any { return t.UnixMicro() }}
)

func jsonArray(values any) any {
	b, err := json.Marshal(values)
	if err != nil { // values are numbers and valid strings
		panic("where: " + err.Error())
	}
	return string(b)
}

// Build returns the conditions of f, joined by AND, and args followed by their arguments:
// their numbers follow those of args. now is the database's clock as an expression of that
// database that an index condition may use. The filter that matches everything is "true".
func Build(f ledger.Filter, d Dialect, now string, args []any) (string, []any) {
	b := builder{Dialect: d, now: now, args: args}
	b.filter(f)
	if len(b.terms) == 0 {
		return "true", args
	}
	return strings.Join(b.terms, " AND "), b.args
}

// NamesAttempt and NamesBacklog say whether a condition, or a list of columns, is about the newest attempt, or
// the backlog: who counts can do without the others.
func NamesAttempt(sql string) bool { return attemptColumn.MatchString(sql) }
func NamesBacklog(sql string) bool { return backlogColumn.MatchString(sql) }

var attemptColumn, backlogColumn = regexp.MustCompile(`\ba\.`), regexp.MustCompile(`\bb\.`)

// filter adds the conditions of f, but for those on fields, which are not a store's.
func (b *builder) filter(f ledger.Filter) {
	if f.IDs != nil { // without any, nothing matches
		b.add(b.list, "i.id", b.arg(b.array(f.IDs)))
	}
	b.in("i.kind", f.Kinds)
	b.in("i.scope", f.Scopes)
	b.states(f.States)
	b.rounds(f.Rounds)
	b.in("coalesce(b.locked_by, '')", f.Agents)
	b.in("coalesce(a.code, '')", f.Codes)
	b.outcomes(f.Outcomes)
	b.sources(f.Sources)
	if b.storable(f.Key) {
		b.add("i.key = %s", b.arg(f.Key))
	}
	if b.storable(f.Prefix) { // a range, so that an index can serve it
		b.add("i.key >= %s", b.arg(f.Prefix))
		if end := successor(f.Prefix); end != "" {
			b.add("i.key < %s", b.arg(end))
		}
	}
	if b.storable(f.KeyHas) {
		b.add("%s(i.key, %s) > 0", b.has, b.arg(f.KeyHas))
	}
	if b.storable(f.ErrorHas) {
		b.add("%s(a.error, %s) > 0", b.has, b.arg(f.ErrorHas))
	}
	if len(f.Priorities) > 0 {
		b.add(b.list, "b.priority", b.arg(b.array(f.Priorities)))
	}
	if f.Above > 0 {
		b.add("i.id > %s", b.arg(f.Above))
	}
	if f.UpTo > 0 {
		b.add("i.id <= %s", b.arg(f.UpTo))
	}
	if p := b.moment(f.Since); p != "" {
		b.add("(i.created_at >= %s OR a.finished_at >= %s)", p, p)
	}
	if p := b.moment(f.Until); p != "" {
		b.add("i.created_at < %s AND (a.finished_at IS NULL OR a.finished_at < %s)", p, p)
	}
	if p := b.moment(f.AddedFrom); p != "" {
		b.add("i.created_at >= %s", p)
	}
	if p := b.moment(f.AddedTo); p != "" {
		b.add("i.created_at < %s", p)
	}
	for _, g := range f.Also {
		b.filter(g)
	}
}

// moment is the parameter of a time, "" of the zero one. The databases keep microseconds: what is at
// or after a time between two of them is at or after the later one.
func (b *builder) moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	at := t.UTC().Truncate(time.Microsecond)
	if at.Before(t) {
		at = at.Add(time.Microsecond)
	}
	return b.arg(b.time(at))
}

type builder struct {
	Dialect
	now   string
	terms []string
	args  []any
}

func (b *builder) add(format string, args ...any) {
	b.terms = append(b.terms, fmt.Sprintf(format, args...))
}

// arg adds an argument and returns its parameter.
func (b *builder) arg(v any) string {
	b.args = append(b.args, v)
	return fmt.Sprintf("%s%d", b.param, len(b.args))
}

func valid(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// storable says whether s is a condition at all. Text that no ledger can hold matches nothing
// (Postgres would even refuse to be asked for it).
func (b *builder) storable(s string) bool {
	if s != "" && !valid(s) {
		b.add("false")
		return false
	}
	return s != ""
}

func (b *builder) in(column string, values []string) {
	if len(values) == 0 {
		return
	}
	kept := slices.DeleteFunc(slices.Clone(values), func(s string) bool { return !valid(s) })
	b.add(b.list, column, b.arg(b.array(kept)))
}

// sources: the name of a list stands for all its lines.
func (b *builder) sources(names []string) {
	if len(names) == 0 {
		return
	}
	kept, lists := []string{}, []string{}
	for _, name := range names {
		if valid(name) {
			kept, lists = append(kept, name), append(lists, name+":")
		}
	}
	b.add("("+b.list+" OR "+b.list+")", "coalesce(i.source, '')", b.arg(b.array(kept)), "rtrim(i.source, '0123456789')", b.arg(b.array(lists)))
}

// outcomes are those of the newest attempt that ended: of items without one, none.
func (b *builder) outcomes(outcomes []ledger.Outcome) {
	if len(outcomes) == 0 {
		return
	}
	codes := []int16{}
	for _, o := range outcomes {
		if i := slices.Index(ledger.Outcomes, o); i >= 0 {
			codes = append(codes, int16(i))
		}
	}
	b.add(b.list, "a.outcome", b.arg(b.array(codes)))
}

// states: what waits though its time has come is ready, as in [ledger.Record.Item].
func (b *builder) states(states []ledger.State) {
	if len(states) == 0 {
		return
	}
	terms := []string{}
	for _, s := range ledger.States {
		if !slices.Contains(states, s) {
			continue
		}
		switch s {
		case ledger.StateWaiting:
			terms = append(terms, "b.state = 0 AND b.due_at > "+b.now)
		case ledger.StateReady:
			terms = append(terms, "b.state = 1", "b.state = 0 AND b.due_at <= "+b.now)
		case ledger.StateLeased:
			terms = append(terms, "b.state = 2")
		case ledger.StateDead:
			terms = append(terms, "b.state = 3")
		case ledger.StateDoubt:
			terms = append(terms, "b.state = 4")
		case ledger.StateDone: // 5 is the code of OutcomeCancelled
			terms = append(terms, "b.item_id IS NULL AND coalesce(a.outcome, 0) <> 5")
		case ledger.StateCancelled:
			terms = append(terms, "b.item_id IS NULL AND a.outcome = 5")
		}
	}
	if len(terms) == 0 { // no state of ours
		terms = append(terms, "false")
	}
	b.add("(%s)", strings.Join(terms, " OR "))
}

// rounds: how the current round of an item stands, as in [ledger.Record.RoundState]. The newest attempt of
// a recurring item that waits closed its round if it is final and of the opening that waits, and failed for good
// if it is one of the outcomes 2, 7 and 8.
func (b *builder) rounds(rounds []ledger.RoundState) {
	if len(rounds) == 0 {
		return
	}
	over := "coalesce(b.state = 0 AND b.due_at > " + b.now + " AND a.final AND a.period IS NOT NULL AND a.outcome <> 5 AND a.epoch = b.epoch, false)"
	terms := []string{}
	for _, r := range ledger.RoundStates {
		if !slices.Contains(rounds, r) {
			continue
		}
		switch r {
		case ledger.RoundOpen:
			terms = append(terms, "b.state IN (0, 1, 2) AND NOT "+over)
		case ledger.RoundDone:
			terms = append(terms, "b.item_id IS NULL AND coalesce(a.outcome, 0) <> 5", over+" AND a.outcome NOT IN (2, 7, 8)")
		case ledger.RoundFailed:
			terms = append(terms, "b.state = 3", over+" AND a.outcome IN (2, 7, 8)")
		case ledger.RoundDoubt:
			terms = append(terms, "b.state = 4")
		case ledger.RoundCancelled:
			terms = append(terms, "b.item_id IS NULL AND a.outcome = 5")
		}
	}
	if len(terms) == 0 { // no state of ours
		terms = append(terms, "false")
	}
	b.add("(%s)", strings.Join(terms, " OR "))
}

// successor is the smallest text above all that begin with s, "" if there is none. Both
// databases compare the bytes of UTF-8, which is the order of the characters.
func successor(s string) string {
	for s != "" {
		r, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
		switch {
		case r == 0xD7FF: // surrogates are no characters
			return s + "\uE000"
		case r < utf8.MaxRune:
			return s + string(r+1)
		}
	}
	return ""
}

// Tally is the SELECT list, and the grouping, that counts items by a column and how their round stands,
// as the number in [ledger.RoundStates]. column is one of ledger.ByKind, ByScope, ByPayload.
func Tally(column, now string) (list, group string) {
	terms := []string{}
	for i, r := range ledger.RoundStates {
		b := builder{now: now}
		b.rounds([]ledger.RoundState{r})
		terms = append(terms, fmt.Sprintf("WHEN %s THEN %d", b.terms[0], i))
	}
	return fmt.Sprintf("i.%s, CASE %s END, count(*)", column, strings.Join(terms, " ")), " GROUP BY 1, 2"
}
