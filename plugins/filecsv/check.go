package filecsv

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// rules is the payload, compiled: what is asked of every file, whatever its columns.
type rules struct {
	in       In
	delim    byte // 0: to be found out
	quote    byte
	escape   byte
	encoding encodingOf
	dateFormats
	nulls map[string]bool
	types map[string]rule
}

// rule is what a value must be.
type rule struct {
	ok   func(v []byte) bool
	want string // begins the reason of a value that is not
}

// check is what is asked of one column of one file.
type check struct {
	column  int
	notNull bool
	rule    rule // ok nil: anything
}

// allowed is how many bad rows a file of so many rows may have, -1 for any number.
func (in In) allowed(rows int64) int64 {
	if in.MaxBadRows < 0 {
		return -1
	}
	return max(in.MaxBadRows, int64(in.MaxBadPercent/100*float64(rows)))
}

// hopeless tells that a file with so many bad rows has failed, whatever comes.
func (in In) hopeless(bad int64) bool {
	return in.MaxBadRows >= 0 && in.MaxBadPercent == 0 && bad > in.MaxBadRows
}

var delimiters = map[string]byte{"auto": 0, "tab": '\t', "\\t": '\t'}

func newRules(in In) (*rules, error) {
	if in.Table == "" && len(in.Into)+len(in.Key) > 0 {
		return nil, refuse("bad_check", "into and key: there is no table")
	}
	if in.Table != "" && len(in.Unique) > 0 && (in.MaxBadRows != 0 || in.MaxBadPercent != 0) {
		return nil, refuse("bad_check", "unique: which rows repeat a value is known only when they are loaded; with a table, max_bad_rows and max_bad_percent must be 0")
	}
	r := &rules{in: in, quote: '"', nulls: map[string]bool{}, types: map[string]rule{}}
	var known bool
	if r.delim, known = delimiters[in.Delimiter]; !known {
		if len(in.Delimiter) != 1 || strings.Contains("\x00\"\r\n", in.Delimiter) || in.Delimiter[0] > '~' {
			return nil, refuse("bad_check", "delimiter: %q is neither auto, tab nor one ASCII character", in.Delimiter)
		}
		r.delim = in.Delimiter[0]
	}
	switch in.Quotes {
	case "no":
		r.quote = 0
	case "backslash":
		r.escape = '\\'
	}
	for _, n := range in.Nulls {
		r.nulls[n] = true
	}
	var err error
	if r.encoding, err = newEncoding(in.Encoding); err != nil {
		return nil, err
	}
	if r.dateFormats, err = newDateFormats(in.DateFormats); err != nil {
		return nil, err
	}
	for name, text := range in.Types {
		if r.types[name], err = r.newRule(text); err != nil {
			return nil, refuse("bad_check", "types: column %q: %v", name, err)
		}
	}
	return r, nil
}

// newRule compiles the type of a column.
func (r *rules) newRule(text string) (rule, error) {
	name, arg, hasArg := strings.Cut(text, ":")
	switch {
	case text == "int":
		return rule{integer.Match, "not an integer"}, nil
	case text == "decimal":
		return rule{decimal.Match, "not a decimal number"}, nil
	case text == "date":
		return rule{func(v []byte) bool { _, ok := r.date(v); return ok }, "not a date like " + strings.Join(r.in.DateFormats, " or ")}, nil
	case text == "bool":
		return rule{func(v []byte) bool { return truth(v, false) }, "neither true nor false"}, nil
	case text == "email":
		return rule{email, "not an e-mail address"}, nil
	case name == "regexp" && hasArg:
		re, err := regexp.Compile("^(?:" + arg + ")$")
		if err != nil {
			return rule{}, err
		}
		return rule{re.Match, "does not match " + shown(arg)}, nil
	case name == "enum" && hasArg:
		values := strings.Split(arg, "|")
		return rule{func(v []byte) bool { return slices.Contains(values, string(v)) }, "not one of " + shown(strings.Join(values, ", "))}, nil
	}
	return rule{}, fmt.Errorf("unknown type %q; there are int, decimal, date, bool, email, regexp:PATTERN and enum:A|B|C", shown(text))
}

// named returns all columns that the rules name, sorted. Naming one makes it required.
func (r *rules) named() []string {
	return slices.Compact(slices.Sorted(slices.Values(
		slices.Concat(r.in.Required, r.in.NotNull, r.in.Unique, r.in.Key, slices.Collect(maps.Keys(r.in.Types))))))
}

// isNull is true for a value that means that there is none.
func (r *rules) isNull(v []byte) bool {
	return len(v) == 0 || len(r.nulls) > 0 && r.nulls[string(v)]
}

// missing refuses a file without the columns that the rules name.
func (r *rules) missing(names []string) error {
	var texts []string
	for _, want := range r.named() {
		if slices.Contains(names, want) {
			continue
		}
		text := strconv.Quote(shown(want))
		if i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, want) }); i >= 0 {
			text += fmt.Sprintf(" (there is %q)", shown(names[i]))
		}
		texts = append(texts, text)
	}
	switch len(texts) {
	case 0:
		return nil
	case 1:
		return refuse("missing_column", "column %s missing", texts[0])
	}
	return refuse("missing_column", "columns %s missing", strings.Join(texts, ", "))
}

// checks returns what is asked of the values of a file with these columns, left to right.
func (r *rules) checks(names []string) []check {
	var all []check
	for i, name := range names {
		c := check{column: i, notNull: slices.Contains(r.in.NotNull, name) || slices.Contains(r.in.Key, name), rule: r.types[name]}
		if c.notNull || c.rule.ok != nil {
			all = append(all, c)
		}
	}
	return all
}

// uniqueColumns returns the columns that must be unique, left to right.
func (r *rules) uniqueColumns(names []string) []int {
	var all []int
	for i, name := range names {
		if slices.Contains(r.in.Unique, name) {
			all = append(all, i)
		}
	}
	return all
}

// fails returns what is wrong with a value, or "".
func (c *check) fails(v []byte, null bool) string {
	switch {
	case null && c.notNull:
		return "no value"
	case null || c.rule.ok == nil || c.rule.ok(v):
		return ""
	}
	return fmt.Sprintf("%s: %q", c.rule.want, shown(string(v)))
}
