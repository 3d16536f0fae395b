package filter

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
)

// definition is a term of the language.
type definition struct {
	name    string // with the sign that follows it
	example string
	about   string
	// set takes the text after the name; nil means that the term has conditions on fields of JSON, see parseField.
	set func(f *ledger.Filter, value string, now time.Time) error
}

// definitions are all terms.
var definitions = slices.Concat(textTerms(), []definition{
	{"id:", "id:7,8", "its id", list(setID)},
	{"state:", "state:dead,doubt", "its state: " + joined(ledger.States),
		words("a state", ledger.States, func(f *ledger.Filter) *[]ledger.State { return &f.States })},
	{"round:", "round:failed", "state of the current round: " + joined(ledger.RoundStates) +
		"; newly_failed: failed, and not in the round before; recovered: done, and failed before",
		words("a state of a round", ledger.RoundConditions,
			func(f *ledger.Filter) *[]ledger.RoundState { return &f.Rounds })},
	{"outcome:", "outcome:failed", "outcome of the newest attempt that ended: " + joined(ledger.Outcomes),
		words("an outcome", ledger.Outcomes, func(f *ledger.Filter) *[]ledger.Outcome { return &f.Outcomes })},
	{"priority:", "priority:-1,0", "priority of an unfinished item", list(setPriority)},
	{"key:", "key:K", "its key; key:/in/*: its key begins with /in/", func(f *ledger.Filter, value string, _ time.Time) error {
		if p, ok := strings.CutSuffix(value, "*"); ok {
			f.Prefix = p
		} else {
			f.Key = value
		}
		return nil
	}},
	{"key~", "key~part", "part of the key; upper and lower case differ", text(func(f *ledger.Filter) *string { return &f.KeyHas })},
	{"error~", "error~part", "part of the error of the newest attempt that ended; upper and lower case differ",
		text(func(f *ledger.Filter) *string { return &f.ErrorHas })},
	{"since:", "since:2h", "it was added since then, or its newest attempt ended since then",
		at(func(f *ledger.Filter) *time.Time { return &f.Since })},
	{"until:", "until:2026-11-20", "it was added before then, and no attempt of it has ended since then",
		at(func(f *ledger.Filter) *time.Time { return &f.Until })},
	{"added:", "added:7d", "it was added since then; added:2026-11-01..2026-11-08: between the two",
		between(func(f *ledger.Filter) (from, to *time.Time) { return &f.AddedFrom, &f.AddedTo })},
	{"due:", "due:..3d", "it is unfinished, and was due more than 3 days ago; due:2026-11-01..2026-11-08: due between the two",
		between(func(f *ledger.Filter) (from, to *time.Time) { return &f.DueFrom, &f.DueTo })},
	{"failing:", "failing:1d",
		"it fails, and has begun to fail since then; failing:..7d: it has failed for longer than 7 days",
		between(func(f *ledger.Filter) (from, to *time.Time) { return &f.FailingFrom, &f.FailingTo })},
	{"recovered:", "recovered:1d", "it had failed, has been done since then, and has not failed again",
		between(func(f *ledger.Filter) (from, to *time.Time) { return &f.RecoveredFrom, &f.RecoveredTo })},
	{"output.", "output.status:404",
		"a field of the newest JSON output of its attempts: output.a.b:x,y is about the nested field a.b", nil},
	{"payload.", "payload.name~part", "a field of the JSON payload; : compares, ~ finds a part, > and < compare numbers: payload.size>100", nil},
})

// textTerms returns the definitions of [ledger.TextTerms].
func textTerms() (all []definition) {
	for _, t := range ledger.TextTerms {
		set := func(f *ledger.Filter, value string) error {
			*t.Values(f) = append(*t.Values(f), value)
			return nil
		}
		name := t.Example[:strings.Index(t.Example, ":")+1]
		d := definition{name: name, example: t.Example, about: t.About, set: list(set)}
		if t.Comma {
			d.set = func(f *ledger.Filter, value string, _ time.Time) error { return set(f, value) }
		}
		all = append(all, d)
	}
	return all
}

// Names are the names of terms, each with the sign that follows it.
var Names = func() (names []string) {
	for _, d := range definitions {
		names = append(names, d.name)
	}
	return names
}()

// An Offer is a text that can be typed in a filter, for completion.
type Offer struct{ Text, About string }

// Offers are the names of all terms. A name with few possible values is also there with each of them.
var Offers = func() (all []Offer) {
	few := map[string][]string{"state:": strings.Fields(joined(ledger.States)),
		"round:": strings.Fields(joined(ledger.RoundConditions)), "outcome:": strings.Fields(joined(ledger.Outcomes))}
	for _, d := range definitions {
		about, _, _ := strings.Cut(d.about, ": ")
		all = append(all, Offer{d.name, about})
		for _, v := range few[d.name] {
			all = append(all, Offer{Text: d.name + v})
		}
	}
	return all
}()

// Terms has an example of each term on one line, for errors.
var Terms = func() string {
	var examples []string
	for _, d := range definitions {
		examples = append(examples, d.example)
	}
	return strings.Join(examples, " ")
}()

// Help has a line for each term.
var Help = func() string {
	var b strings.Builder
	for _, d := range definitions {
		line := fmt.Sprintf("  %-20s  %s", d.example, d.about)
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}()

func joined[T ~string](all []T) string {
	texts := make([]string, len(all))
	for i, s := range all {
		texts[i] = string(s)
	}
	return strings.Join(texts, " ")
}

// setter is the type of definition.set.
type setter = func(f *ledger.Filter, value string, now time.Time) error

// list takes values that are separated by commas.
func list(set func(f *ledger.Filter, value string) error) setter {
	return func(f *ledger.Filter, value string, _ time.Time) error {
		for v := range strings.SplitSeq(value, ",") {
			if err := set(f, v); err != nil {
				return err
			}
		}
		return nil
	}
}

// words takes values that are separated by commas, each of them in all.
func words[T ~string](what string, all []T, of func(*ledger.Filter) *[]T) setter {
	return list(func(f *ledger.Filter, value string) error {
		if !slices.Contains(all, T(value)) {
			return &wordError{value, strings.Fields(joined(all)), fmt.Sprintf("%q is not %s: %s", value, what, joined(all))}
		}
		*of(f) = append(*of(f), T(value))
		return nil
	})
}

// text takes any value.
func text(of func(*ledger.Filter) *string) setter {
	return func(f *ledger.Filter, value string, _ time.Time) error {
		*of(f) = value
		return nil
	}
}

// at takes a time, see Moment.
func at(of func(*ledger.Filter) *time.Time) setter {
	return func(f *ledger.Filter, value string, now time.Time) (err error) {
		*of(f), err = Moment(value, now)
		return err
	}
}

// between takes a span of time.
func between(of func(*ledger.Filter) (from, to *time.Time)) setter {
	return func(f *ledger.Filter, value string, now time.Time) (err error) {
		from, to := of(f)
		*from, *to, err = span(value, now)
		return err
	}
}

func setID(f *ledger.Filter, value string) error {
	id, err := strconv.ParseInt(value, 10, 64)
	if err != nil || id < 1 {
		return fmt.Errorf("%q is not an id", value)
	}
	f.IDs = append(f.IDs, id)
	return nil
}

func setPriority(f *ledger.Filter, value string) error {
	p, err := strconv.ParseInt(value, 10, 16)
	if err != nil || p < bounds.MinPriority || p > bounds.MaxPriority {
		return fmt.Errorf("%q is not a priority: %d … %d", value, bounds.MinPriority, bounds.MaxPriority)
	}
	f.Priorities = append(f.Priorities, int16(p))
	return nil
}
