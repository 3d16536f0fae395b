package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger/cause"
)

// Failures groups failed items by cause. It keeps a bounded number of causes and a few
// examples of each, however many items there are.
type Failures struct {
	// From and To are the time of the trends, see Over. Zero: causes have no trends.
	From, To time.Time

	groups map[string]*Failure // by cause; "" has the failures of causes after the first maxCauses
}

// trendParts is the number of equal parts into which a trend divides its time.
const trendParts = 24

// Over makes causes have a trend of the time between two moments. The end is moved to the end of a whole part, so that
// the same failures have the same trend for a while.
func (f *Failures) Over(from, to time.Time) {
	part := max(time.Second, to.Sub(from)/trendParts).Truncate(time.Second)
	f.To = to.Truncate(part).Add(part).UTC()
	f.From = f.To.Add(-trendParts * part)
}

// Failure is a cause of failures.
type Failure struct {
	Cause    string    `json:"cause"` // see package cause; "" for the failures of further causes
	Code     string    `json:"code"`
	Message  string    `json:"message"` // of the first example
	Count    int64     `json:"count"`
	Share    float64   `json:"share"`    // of all failures, 0 … 1
	Examples []Example `json:"examples"` // the items with the lowest ids, so that a report does not depend on the order

	AtLeast bool  `json:"-"` // Count is a lower bound
	ForGood int64 `json:"-"` // items that are not tried again by themselves

	// First and Last are when the first item began to fail and the newest failure ended. Kinds and Plugins are sorted.
	// All four are set by Seen.
	First   time.Time `json:"-"`
	Last    time.Time `json:"-"`
	Kinds   []string  `json:"-"`
	Plugins []string  `json:"-"`
	Trend   []int64   `json:"-"` // failures that ended in each part of the time of Over
}

// maxNames is how many kinds, and how many plugins, of a cause are kept.
const maxNames = 20

// Ended counts a failure in the trend of its cause, by the time at which it ended.
func (f *Failures) Ended(g *Failure, at time.Time) {
	if f.To.IsZero() {
		return
	}
	if g.Trend == nil {
		g.Trend = make([]int64, trendParts)
	}
	part := int(at.Sub(f.From) / (f.To.Sub(f.From) / trendParts))
	g.Trend[min(max(part, 0), trendParts-1)]++
}

// Seen records a failure: its item fails since a time, and its newest attempt ended at another.
func (g *Failure) Seen(since, at time.Time, kind, plugin string) {
	if g.First.IsZero() || since.Before(g.First) {
		g.First = since
	}
	if at.After(g.Last) {
		g.Last = at
	}
	note(&g.Kinds, kind)
	note(&g.Plugins, plugin)
}

// note adds a name to a sorted list, unless it is "", known, or the list is full.
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

// Add counts one failed item and returns its cause.
func (f *Failures) Add(id int64, key, code, message string) *Failure {
	if f.groups == nil {
		f.groups = map[string]*Failure{}
	}
	group := cause.Of(code, message, key)
	g := f.groups[group]
	if g == nil && len(f.groups) >= maxCauses {
		group, code, message = "", "", "other causes"
		g = f.groups[group]
	}
	if g == nil {
		g = &Failure{Cause: group, Code: code}
		f.groups[group] = g
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

// List returns the causes, the most frequent first.
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

// shownCauses is how many causes a table lists before it counts the others in one line.
const shownCauses = 10

// Further returns how many causes a table leaves out. A single further cause is listed instead of counted.
func Further(failures []Failure) int {
	if len(failures) <= shownCauses+1 {
		return 0
	}
	return len(failures) - shownCauses
}

// kinds returns the number of kinds that have these failures.
func kinds(failures []Failure) int {
	var names []string
	for _, f := range failures {
		for _, kind := range f.Kinds {
			note(&names, kind)
		}
	}
	return len(names)
}

// fate describes whether the items of a cause are tried again by themselves.
func (f *Failure) fate() string {
	switch f.ForGood {
	case 0:
		return "tried again"
	case f.Count:
		return "for good"
	}
	return Count(f.ForGood) + " for good"
}

// age returns lead and the time since at in its greatest unit: "since 3 h"; "" if at is zero.
func age(lead string, now, at time.Time) string {
	if at.IsZero() {
		return ""
	}
	for _, unit := range []struct {
		long time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}} {
		if d := now.Sub(at); d >= unit.long {
			return fmt.Sprintf("%s%d %s", lead, d/unit.long, unit.name)
		}
	}
	return fmt.Sprintf("%s%d s", lead, max(0, now.Sub(at)/time.Second))
}

// Table writes the causes for people: count, kind if there are several, cause and an example. If the line has room, it
// adds the last time and further lines of the message. name shortens a key.
func (p *Printer) Table(failures []Failure, name func(key string) string) error {
	t := table{indent: "  ", columns: []tableColumn{{}, {}, {middle: true, main: true}, {middle: true}, {spare: 1}}}
	now, several := time.Now(), kinds(failures) > 1
	aged := slices.ContainsFunc(failures, func(f Failure) bool { return !f.First.IsZero() })
	if several {
		t.columns = slices.Insert(t.columns, 1, tableColumn{})
	}
	if aged {
		t.columns = append(t.columns, tableColumn{}, tableColumn{}, tableColumn{spare: 2})
	}
	row := func(count, kind, code, message, key, more, fate, since, last string) {
		cells := []string{count, code, message, key, more}
		if several {
			cells = slices.Insert(cells, 1, kind)
		}
		if aged {
			cells = append(cells, fate, since, last)
		}
		t.add(cells)
	}
	for i, f := range failures {
		if further := Further(failures); further > 0 && i == shownCauses {
			var left int64
			for _, g := range failures[i:] {
				left += g.Count
			}
			row(Count(left)+" ×", "", "", "of "+Count(int64(further))+" further causes", "", "", "", "", "")
			break
		}
		message, more, _ := strings.Cut(f.Message, "\n")
		count := Count(f.Count) + " ×"
		if f.AtLeast {
			count = "≥ " + count
		}
		row(count, strings.Join(f.Kinds, ", "), f.Code, message, name(f.Examples[0].Key), strings.TrimSpace(more),
			f.fate(), age("since ", now, f.First), age("last ", now, f.Last))
	}
	t.alignRight(0)
	return t.write(p.Out, p.Width)
}
