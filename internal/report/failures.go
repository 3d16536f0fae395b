package report

import (
	"cmp"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Failures groups failed items by cause: their code and their message without what differs
// from item to item (its key, numbers, long ids). It keeps a bounded number of causes and a few
// examples of each, however many items there are.
type Failures struct {
	groups map[cause]*Failure
}

type cause struct{ code, message string }

// Failure is one cause. Message is that of the first example; the examples are the items with
// the lowest ids, so that the same failures make the same report.
type Failure struct {
	Code     string    `json:"code"`
	Message  string    `json:"message"`
	Count    int64     `json:"count"`
	Share    float64   `json:"share"` // of all failures, 0 … 1
	Examples []Example `json:"examples"`

	AtLeast bool `json:"-"` // not all were counted

	// What Seen was told; bounded, sorted, and not part of a report.
	First   time.Time `json:"-"`
	Last    time.Time `json:"-"`
	Kinds   []string  `json:"-"`
	Plugins []string  `json:"-"`
}

// maxNames is how many kinds and plugins of a cause are kept.
const maxNames = 20

// Seen takes note of when it happened, to which kind and to what worked on it.
func (g *Failure) Seen(at time.Time, kind, plugin string) {
	if g.First.IsZero() || at.Before(g.First) {
		g.First = at
	}
	if at.After(g.Last) {
		g.Last = at
	}
	note(&g.Kinds, kind)
	note(&g.Plugins, plugin)
}

func note(names *[]string, name string) {
	if i, known := slices.BinarySearch(*names, name); !known && name != "" && len(*names) < maxNames {
		*names = slices.Insert(*names, i, name)
	}
}

// Example is one item of a cause.
type Example struct {
	ID    int64  `json:"id"`
	Key   string `json:"key"`
	Error string `json:"error"`
}

const (
	maxCauses   = 1000
	maxExamples = 3
)

// rest is the cause of what comes after maxCauses.
var rest = cause{"", "other causes"}

// Add counts one failed item and returns its cause.
func (f *Failures) Add(id int64, key, code, message string) *Failure {
	if f.groups == nil {
		f.groups = map[cause]*Failure{}
	}
	c := cause{code, normalise(message, key)}
	g := f.groups[c]
	if g == nil && len(f.groups) >= maxCauses {
		c, code, message = rest, rest.code, rest.message
		g = f.groups[c]
	}
	if g == nil {
		g = &Failure{Code: code}
		f.groups[c] = g
	}
	g.Count++
	at, _ := slices.BinarySearchFunc(g.Examples, id, func(e Example, id int64) int { return cmp.Compare(e.ID, id) })
	if at < maxExamples {
		g.Examples = slices.Insert(g.Examples, at, Example{id, key, message})
		g.Examples = g.Examples[:min(len(g.Examples), maxExamples)]
		g.Message = g.Examples[0].Error
	}
	return g
}

// List is the causes, the most frequent first.
func (f *Failures) List() []Failure {
	list := make([]Failure, 0, len(f.groups))
	var total int64
	for _, g := range f.groups {
		list = append(list, *g)
		total += g.Count
	}
	for i := range list {
		list[i].Share = float64(list[i].Count) / float64(total)
	}
	slices.SortFunc(list, func(a, b Failure) int {
		return cmp.Or(-cmp.Compare(a.Count, b.Count), strings.Compare(a.Code, b.Code), strings.Compare(a.Message, b.Message))
	})
	return list
}

var (
	hex    = regexp.MustCompile(`\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}\b|\b[0-9a-fA-F]{8,}\b`)
	number = regexp.MustCompile(`[0-9]+([.,:][0-9]+)*`)
)

// normalise is a message without what is particular to one item. Numbers go first, also those of the key: one
// that is in both would else stand for the key in some messages and not in others.
func normalise(message, key string) string {
	message, _, _ = strings.Cut(message, "\n")
	message, key = withoutNumbers(message), withoutNumbers(key)
	for _, name := range []string{key, filepath.Base(key)} {
		if len(name) > 2 { // a shorter one is part of other words
			message = strings.ReplaceAll(message, name, "KEY")
		}
	}
	return message
}

func withoutNumbers(s string) string {
	return number.ReplaceAllString(hex.ReplaceAllString(s, "N"), "N")
}

// shownCauses is how many causes a table has; the rest is one line.
const shownCauses = 10

// Table writes the causes for people: how many, which, an example and, if there is room, what the
// message's further lines say about it. name shortens a key.
func (p *Printer) Table(failures []Failure, name func(key string) string) error {
	t := table{indent: "  ", columns: []tableColumn{{}, {}, {middle: true, main: true}, {middle: true}, {spare: 1}}}
	for i, f := range failures {
		if i == shownCauses && len(failures) > shownCauses+1 {
			var left int64
			for _, g := range failures[i:] {
				left += g.Count
			}
			t.add([]string{Count(left) + " ×", "", "of " + Count(int64(len(failures)-i)) + " further causes", "", ""})
			break
		}
		message, more, _ := strings.Cut(f.Message, "\n")
		count := Count(f.Count) + " ×"
		if f.AtLeast {
			count = "≥ " + count
		}
		t.add([]string{count, f.Code, message, name(f.Examples[0].Key), strings.TrimSpace(more)})
	}
	t.alignRight(0)
	return t.write(p.Out, p.Width)
}
