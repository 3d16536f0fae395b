package ledger

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Filter chooses items. Fields are joined by and; several values of one field by or. The zero value matches every item.
// Package filter parses a text to a Filter.
type Filter struct {
	IDs    []int64 // nil matches every item, an empty list none
	Kinds  []string
	Scopes []string
	// Agents hold the item. A name also matches the programs of this name with a number: "box-a" matches "box-a/2".
	Agents []string
	// Sources are where items came from. The name of a list also matches each of its lines: "links" matches "links:17".
	Sources []string
	// ShardKeys are the keys by which limits count the item: its shard key, or else its key.
	ShardKeys []string
	Codes     []string // of the newest attempt that ended
	Causes    []string // of that attempt; see package cause
	States    []State
	Rounds    []RoundState // or other RoundConditions
	// Outcomes of the newest attempt that ended, any of them.
	Outcomes []Outcome
	Key      string // exact
	Prefix   string // of the key
	// KeyHas and ErrorHas are substrings of the key and of the newest attempt's error, case as given.
	KeyHas   string
	ErrorHas string
	// Priorities of unfinished items; finished ones have none.
	Priorities []int16
	// Since matches items that were added, or whose newest attempt ended, at or after it. Until matches items that were
	// added, and whose newest attempt ended, before it.
	Since, Until time.Time
	// AddedFrom and AddedTo match items that were added at or after AddedFrom, and before AddedTo.
	AddedFrom, AddedTo time.Time
	// DueFrom and DueTo match unfinished items that are due at or after DueFrom, and before DueTo.
	DueFrom, DueTo time.Time `json:",omitzero"`
	// FailingFrom and FailingTo match items that have been failing since a time at or after FailingFrom and before
	// FailingTo. RecoveredFrom and RecoveredTo match items that recovered in such a time. See Outage.
	FailingFrom, FailingTo, RecoveredFrom, RecoveredTo time.Time
	// Above and UpTo bound the ids: greater than Above, at most UpTo; 0 means no bound.
	Above, UpTo int64
	// Fields are conditions on fields of the payload and the output. This package checks them, not the store: payload
	// and output may be no JSON.
	Fields []FieldTerm
	// Also are further filters; all must match.
	Also []Filter
}

// TextTerm is a condition of filters: a text of an item is one of some values. Package filter parses the condition,
// package where writes it as SQL.
type TextTerm struct {
	Example string // the term as people type it: a name, a colon and a value
	About   string // for people, beside the example
	// Column is an expression: i is the item, b its backlog row, a the newest attempt. It is never NULL unless Number is
	// given.
	Column string
	// Number separates a name from a number at its end. A value without a number then matches all numbers, too. ""
	// means that names have no numbers.
	Number string
	Comma  bool // a comma belongs to the value; otherwise it separates values
	Values func(*Filter) *[]string
	Of     func(*Item) string
}

// TextTerms are all TextTerms of the language.
var TextTerms = []TextTerm{
	{Example: "kind:K", About: "its kind", Column: "i.kind",
		Values: func(f *Filter) *[]string { return &f.Kinds }, Of: func(it *Item) string { return it.Kind }},
	{Example: "scope:S", About: "its scope; scope: alone is the default scope", Column: "i.scope",
		Values: func(f *Filter) *[]string { return &f.Scopes }, Of: func(it *Item) string { return it.Scope }},
	{Example: "agent:A", About: "the agent that holds it; the name A of a daemon also matches its workers A/2, A/3 …",
		Column: "b.locked_by", Number: "/",
		Values: func(f *Filter) *[]string { return &f.Agents }, Of: func(it *Item) string { return it.Agent }},
	{Example: "source:S", About: "its source, file or folder; source:links:17 is line 17 of the list links",
		Column: "i.source", Number: ":", Comma: true, // names of sources may have commas
		Values: func(f *Filter) *[]string { return &f.Sources }, Of: func(it *Item) string { return it.Source }},
	{Example: "shard_key:S", About: "what its limits by shard key count it under: its shard key, or else its key",
		Column: "coalesce(i.shard_key, i.key)", Comma: true, // keys may have commas
		Values: func(f *Filter) *[]string { return &f.ShardKeys },
		Of:     func(it *Item) string { return cmp.Or(it.ShardKey, it.Key) }},
	{Example: "code:http_404", About: "code of the error of the newest attempt that ended", Column: "coalesce(a.code, '')",
		Values: func(f *Filter) *[]string { return &f.Codes }, Of: func(it *Item) string { return it.Code }},
	{Example: "cause:3f2a9c01b7de",
		About:  "cause of the error of the newest attempt that ended, as the list of errors has it",
		Column: "coalesce(a.cause, '')",
		Values: func(f *Filter) *[]string { return &f.Causes }, Of: func(it *Item) string { return it.Cause }},
}

func (t *TextTerm) match(f *Filter, it *Item) bool {
	values, text := *t.Values(f), t.Of(it)
	return len(values) == 0 || slices.Contains(values, text) ||
		t.Number != "" && slices.Contains(values, withoutNumber(text, t.Number))
}

// IDs matches the items with these ids; without ids it matches no item.
func IDs(ids ...int64) Filter { return Filter{IDs: append([]int64{}, ids...)} }

// within reports whether from ≤ at < to. A zero bound is no bound. A zero time is within only if both bounds are zero.
func within(at, from, to time.Time) bool {
	return from.IsZero() && to.IsZero() || !at.IsZero() && !at.Before(from) && (to.IsZero() || at.Before(to))
}

// And returns a filter that matches the items that both match.
func (f Filter) And(g Filter) Filter {
	if reflect.ValueOf(f).IsZero() {
		return g
	}
	f.Also = append(slices.Clone(f.Also), g)
	return f
}

// Match reports whether the filter matches a record, at a time of the database's clock. The SQL of every store must
// give the same answer, except for Fields. A substring that is not valid UTF-8 matches nothing. If the filter has
// conditions on the output, the record must have been read with it.
func (f Filter) Match(r *Record, now time.Time) bool {
	it := r.Item(now)
	var due time.Time
	if r.Work != nil {
		due = r.Work.Due
	}
	switch {
	case f.IDs != nil && !slices.Contains(f.IDs, r.ID),
		slices.ContainsFunc(TextTerms, func(t TextTerm) bool { return !t.match(&f, &it) }),
		len(f.States) > 0 && !slices.Contains(f.States, it.State),
		len(f.Rounds) > 0 && !r.inRound(f.Rounds, it.RoundState),
		len(f.Outcomes) > 0 && !slices.Contains(f.Outcomes, it.Outcome),
		r.ID <= f.Above, f.UpTo > 0 && r.ID > f.UpTo,
		f.Key != "" && f.Key != r.Key,
		!utf8.ValidString(f.Prefix), !utf8.ValidString(f.KeyHas), !utf8.ValidString(f.ErrorHas),
		!strings.HasPrefix(r.Key, f.Prefix), !strings.Contains(r.Key, f.KeyHas),
		!strings.Contains(it.Error, f.ErrorHas),
		len(f.Priorities) > 0 && (r.Work == nil || !slices.Contains(f.Priorities, r.Work.Priority)),
		!f.Since.IsZero() && r.CreatedAt.Before(f.Since) && it.EndedAt.Before(f.Since),
		!f.Until.IsZero() && !(r.CreatedAt.Before(f.Until) && it.EndedAt.Before(f.Until)),
		!within(r.CreatedAt, f.AddedFrom, f.AddedTo), !within(r.FailingSince, f.FailingFrom, f.FailingTo),
		!within(r.RecoveredAt, f.RecoveredFrom, f.RecoveredTo), !within(due, f.DueFrom, f.DueTo),
		!f.matchFields(r.Payload, r.Output):
		return false
	}
	return !slices.ContainsFunc(f.Also, func(g Filter) bool { return !g.Match(r, now) })
}
