// Package where writes a [ledger.Filter] as the WHERE clause of a store's SELECT. Both databases share it, so that a
// filter means the same on both. They differ only in how parameters, lists and times are written.
//
// The clause uses three aliases that the SELECT must have:
//
//	FROM ledger_items i
//	LEFT JOIN ledger_backlog b ON b.item_id = i.id
//	LEFT JOIN ledger_attempts a ON a.item_id = i.id AND a.attempt = (the item's newest attempt)
//
// User text is always a parameter. Substrings are searched with a function, since LIKE would interpret some characters.
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
	"github.com/ledgerd/ledgerd/ledger/internal/code"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// Dialect has the parts that the two databases write differently.
type Dialect struct {
	param string                // prefix of the number of a parameter
	has   string                // function (text, part): greater than 0 if text contains part
	list  string                // condition that a column is in a list, with verbs for column and parameter
	array func(values any) any  // returns a list as an argument
	time  func(t time.Time) any // returns a time as an argument
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

// Build returns the conditions of f, joined by AND, and args followed by the arguments of the conditions. now is an
// expression for the database's clock that an index condition may use. For the filter that matches everything the
// condition is "true".
func Build(f ledger.Filter, d Dialect, now string, args []any) (string, []any) {
	b := builder{Dialect: d, now: now, args: args}
	b.filter(f)
	if len(b.terms) == 0 {
		return "true", args
	}
	return strings.Join(b.terms, " AND "), b.args
}

// NamesItem, NamesAttempt and NamesBacklog report whether a condition, or a list of columns, uses the item, its newest
// attempt, or the backlog. A statement can leave out a table that it does not use.
func NamesItem(sql string) bool    { return itemColumn.MatchString(sql) }
func NamesAttempt(sql string) bool { return attemptColumn.MatchString(sql) }
func NamesBacklog(sql string) bool { return backlogColumn.MatchString(sql) }

var itemColumn, attemptColumn, backlogColumn = regexp.MustCompile(`\bi\.`), regexp.MustCompile(`\ba\.`),
	regexp.MustCompile(`\bb\.`)

// filter adds the conditions of f except those on fields; a store does not check these.
func (b *builder) filter(f ledger.Filter) {
	if f.IDs != nil { // an empty list matches nothing
		b.add(b.list, "i.id", b.arg(b.array(f.IDs)))
	}
	for _, t := range ledger.TextTerms {
		b.text(t, *t.Values(&f))
	}
	b.states(f.States)
	b.rounds(f.Rounds)
	b.outcomes(f.Outcomes)
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
	b.span("i.created_at", f.AddedFrom, f.AddedTo)
	b.span("b.due_at", f.DueFrom, f.DueTo)
	b.span("i.failing_since", f.FailingFrom, f.FailingTo)
	b.span("i.recovered_at", f.RecoveredFrom, f.RecoveredTo)
	for _, g := range f.Also {
		b.filter(g)
	}
}

// Held reports whether f matches only leased items.
func Held(f ledger.Filter) bool {
	return f.Only(ledger.StateLeased) || slices.ContainsFunc(f.Parts(), func(p ledger.Filter) bool {
		return len(p.Agents) > 0 && !slices.Contains(p.Agents, "")
	})
}

// Unfinished reports whether f matches only items of the backlog. Failing items are always there, since completing or
// cancelling an item ends its outage.
func Unfinished(f ledger.Filter) bool {
	return f.Only(code.States()...) || slices.ContainsFunc(f.Parts(), func(p ledger.Filter) bool {
		return len(p.Priorities) > 0 || !p.DueFrom.IsZero() || !p.DueTo.IsZero() || !p.FailingFrom.IsZero() ||
			!p.FailingTo.IsZero() ||
			len(p.Rounds) > 0 && !slices.Contains(p.Rounds, ledger.RoundDone) &&
				!slices.Contains(p.Rounds, ledger.RoundCancelled)
	})
}

// span adds the condition that a time is at or after from, and before to. NULL does not match.
func (b *builder) span(column string, from, to time.Time) {
	if p := b.moment(from); p != "" {
		b.add("%s >= %s", column, p)
	}
	if p := b.moment(to); p != "" {
		b.add("%s < %s", column, p)
	}
}

// moment returns the parameter of a time, "" for the zero time. The databases store microseconds, so the time is
// rounded up to the next one.
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

// storable reports whether s is not empty and may be in a ledger. For any other text but "" it adds a condition that
// matches nothing, because Postgres would refuse it as a parameter.
func (b *builder) storable(s string) bool {
	if s != "" && !valid(s) {
		b.add("false")
		return false
	}
	return s != ""
}

// text adds the condition that a text is one of the values. If the text may end with a number, it may also be a value,
// the separator and a number.
func (b *builder) text(t ledger.TextTerm, values []string) {
	if len(values) == 0 {
		return
	}
	kept := slices.DeleteFunc(slices.Clone(values), func(s string) bool { return !valid(s) })
	if t.Number == "" {
		b.add(b.list, t.Column, b.arg(b.array(kept)))
		return
	}
	bases := make([]string, len(kept))
	for i, name := range kept {
		bases[i] = name + t.Number
	}
	b.add("("+b.list+" OR "+b.list+")", "coalesce("+t.Column+", '')", b.arg(b.array(kept)), "rtrim("+t.Column+
		", '0123456789')", b.arg(b.array(bases)))
}

// outcomes adds a condition on the newest attempt that ended. Items without such an attempt do not match.
func (b *builder) outcomes(outcomes []ledger.Outcome) {
	if len(outcomes) == 0 {
		return
	}
	codes := []int16{}
	for _, o := range outcomes {
		if n := code.OfOutcome(o); n >= 0 {
			codes = append(codes, n)
		}
	}
	b.add(b.list, "a.outcome", b.arg(b.array(codes)))
}

// Conditions of items that have left the backlog, as in [ledger.Record.State]. Only attempts of recurring items have a
// period, and those items leave the backlog only when they are cancelled.
const (
	done = "b.item_id IS NULL AND coalesce(a.outcome, " + code.Done + ") <> " + code.Cancelled +
		" AND a.period IS NULL"
	cancelled = "b.item_id IS NULL AND (a.outcome = " + code.Cancelled + " OR a.period IS NOT NULL)"
)

// states adds a condition on the state. A waiting item that is due is ready, as in [ledger.Record.Item].
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
			terms = append(terms, "b.state = "+code.Waiting+" AND b.due_at > "+b.now)
		case ledger.StateReady:
			terms = append(terms, "b.state = "+code.Ready, "b.state = "+code.Waiting+" AND b.due_at <= "+b.now)
		case ledger.StateLeased:
			terms = append(terms, "b.state = "+code.Leased)
		case ledger.StateDead:
			terms = append(terms, "b.state = "+code.Dead)
		case ledger.StateDoubt:
			terms = append(terms, "b.state = "+code.Doubt)
		case ledger.StateDone:
			terms = append(terms, done)
		case ledger.StateCancelled:
			terms = append(terms, cancelled)
		}
	}
	if len(terms) == 0 { // the names are no states
		terms = append(terms, "false")
	}
	b.add("(%s)", strings.Join(terms, " OR "))
}

// rounds adds a condition on the state of the current round, as in [ledger.Record.RoundState]. If a recurring item
// waits, its newest attempt closed the round if the attempt is final and of the same opening. Then the round failed for
// good if the outcome is in code.GaveUp.
func (b *builder) rounds(rounds []ledger.RoundState) {
	if len(rounds) == 0 {
		return
	}
	over := "coalesce(b.state = " + code.Waiting + " AND b.due_at > " + b.now + " AND a.final AND a.period IS NOT NULL " +
		"AND a.outcome <> " + code.Cancelled + " AND a.epoch = b.epoch, false)"
	later := "coalesce(b.state = " + code.Waiting + " AND b.due_at > " + b.now +
		" AND a.period IS NOT NULL AND a.outcome = " +
		code.Snoozed + " AND a.code = " + code.PutOff + ", false)"
	failed := []string{"b.state = " + code.Dead, over + " AND a.outcome IN " + code.GaveUp}
	completed := over + " AND a.outcome NOT IN " + code.GaveUp
	const before = " AND i.created_at < a.period"
	terms := []string{}
	for _, r := range ledger.RoundConditions {
		if !slices.Contains(rounds, r) {
			continue
		}
		switch r {
		case ledger.RoundOpen:
			terms = append(terms, "b.state IN "+code.Unstuck+" AND NOT "+over+" AND NOT "+later)
		case ledger.RoundDone:
			terms = append(terms, done, completed)
		case ledger.RoundFailed:
			terms = append(terms, failed...)
		case ledger.RoundDoubt:
			terms = append(terms, "b.state = "+code.Doubt)
		case ledger.RoundCancelled:
			terms = append(terms, cancelled)
		case ledger.RoundPutOff:
			terms = append(terms, later)
		case ledger.RoundNewlyFailed:
			terms = append(terms, "a.period IS NOT NULL AND ("+strings.Join(failed, " OR ")+
				") AND i.failing_since >= a.period"+before)
		case ledger.RoundRecovered:
			terms = append(terms, completed+" AND i.recovered_at >= a.period"+before)
		}
	}
	if len(terms) == 0 { // the names are no states
		terms = append(terms, "false")
	}
	b.add("(%s)", strings.Join(terms, " OR "))
}

// successor returns the smallest text above all that begin with s, "" if there is none. Both databases compare the
// bytes of UTF-8. That is the order of the characters.
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

// CountRounds returns the SELECT list and the GROUP BY for counting items by a column and the state of their round.
// The state is its index in [ledger.RoundConditions]. column is one of stats.ByKind, ByScope, ByShardKey, ByPayload.
func CountRounds(column, now string) (list, group string) {
	terms := []string{}
	// Newly failed comes just before failed, and recovered before done: the first that holds counts. Open comes first,
	// because most items are open.
	for _, r := range []ledger.RoundState{ledger.RoundOpen, ledger.RoundRecovered, ledger.RoundDone,
		ledger.RoundNewlyFailed, ledger.RoundFailed, ledger.RoundDoubt, ledger.RoundCancelled, ledger.RoundPutOff} {
		b := builder{now: now}
		b.rounds([]ledger.RoundState{r})
		terms = append(terms, fmt.Sprintf("WHEN %s THEN %d", b.terms[0],
			slices.Index(ledger.RoundConditions, r)))
	}
	value := "i." + column
	if column == stats.ByShardKey {
		value = "coalesce(i.shard_key, i.key)"
	}
	return fmt.Sprintf("%s, CASE %s END, count(*)", value, strings.Join(terms, " ")), " GROUP BY 1, 2"
}
