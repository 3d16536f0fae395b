package filecsv

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// rules is the compiled payload. It does not depend on the columns of a file.
type rules struct {
	in       In
	delim    byte // 0: detected
	quote    byte // see dialect
	escape   byte // see dialect
	encoding encodingOf
	notation
	days  dateFormats     // the formats without a time of day
	nulls map[string]bool // values that mean "no value"
	types map[string]rule // by name of the column
}

// rule is a condition that values of a column meet.
type rule struct {
	ok   func(v []byte) bool
	want string                // the start of the reason why a value fails
	hint func(v []byte) string // a remark on such a value, or ""; may be nil
}

// check is a test of one column of one file.
type check struct {
	column  int
	notNull bool
	rule    rule // if ok is nil, any value passes
}

// allowed returns how many bad rows a file with so many rows may have, -1 for any number.
func (in In) allowed(rows int64) int64 {
	if in.MaxBadRows < 0 {
		return -1
	}
	return max(in.MaxBadRows, int64(in.MaxBadPercent*float64(rows)/100*(1+1e-12))) // 0.57 % of 10,000 are 57
}

// tooMany reports whether a file with so many bad rows fails even if all further rows are good.
func (in In) tooMany(bad int64) bool {
	return in.MaxBadRows >= 0 && in.MaxBadPercent == 0 && bad > in.MaxBadRows
}

var delimiters = map[string]byte{"auto": 0, "tab": '\t', "\\t": '\t'}

func newRules(in In) (*rules, error) {
	if in.Table == "" && len(in.Into)+len(in.Key) > 0 {
		return nil, refuse("bad_check", "into and key: there is no table")
	}
	if err := in.nameColumns(); err != nil {
		return nil, err
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
	r.comma = in.Decimal == ","
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
	r.days = r.withoutTime()
	for name, text := range in.Types {
		if r.types[name], err = r.newRule(text); err != nil {
			return nil, refuse("bad_check", "types: column %q: %v", name, err)
		}
	}
	return r, nil
}

// nameColumns checks the column names of the payload. A file with such names has no header.
func (in *In) nameColumns() error {
	if len(in.Columns) == 0 {
		return nil
	}
	if in.Header == "yes" {
		return refuse("bad_check", "columns: they name the columns of a file without a header, and header is yes")
	}
	for i, name := range in.Columns {
		if name == "" || slices.Contains(in.Columns[:i], name) {
			return refuse("bad_check", "columns: name %d, %q, is blank or was there before", i+1, shown(name))
		}
	}
	in.Header = "no"
	return nil
}

// newRule compiles the type of a column.
func (r *rules) newRule(text string) (rule, error) {
	name, arg, hasArg := strings.Cut(text, ":")
	switch {
	case text == "int":
		return rule{ok: r.pick(integer(), commaInteger()).Match, want: "not an integer", hint: r.hint}, nil
	case text == "decimal":
		return rule{ok: r.pick(decimal(), commaDecimal()).Match, want: "not a decimal number", hint: r.hint}, nil
	case text == "date":
		return r.day()
	case text == "time":
		return rule{ok: r.dateFormats.has, want: "not a time like " + strings.Join(r.in.DateFormats, " or ")}, nil
	case text == "bool":
		return rule{ok: func(v []byte) bool { return truth(v, false) }, want: "neither true nor false"}, nil
	case text == "email":
		return rule{ok: email, want: "not an e-mail address"}, nil
	case name == "regexp" && hasArg:
		re, err := regexp.Compile("^(?:" + arg + ")$")
		if err != nil {
			return rule{}, err
		}
		return rule{ok: re.Match, want: "does not match " + shown(arg)}, nil
	case name == "enum" && hasArg:
		values := strings.Split(arg, "|")
		return rule{ok: func(v []byte) bool { return slices.Contains(values, string(v)) }, want: "not one of " +
			shown(strings.Join(values, ", "))}, nil
	}
	return rule{}, fmt.Errorf("unknown type %q; there are int, decimal, date, time, bool, email, regexp:PATTERN and "+
		"enum:A|B|C", shown(text))
}

// pick returns the pattern that fits the decimal mark.
func (r *rules) pick(point, comma *regexp.Regexp) *regexp.Regexp {
	if r.comma {
		return comma
	}
	return point
}

// day is the rule of the type date: a day without a time.
func (r *rules) day() (rule, error) {
	if len(r.days) == 0 {
		return rule{}, errors.New("all of date_formats have a time of day, and a date has none; the type time has")
	}
	var formats []string
	for _, f := range r.in.DateFormats {
		if !strings.Contains(f, "hh") {
			formats = append(formats, f)
		}
	}
	return rule{r.days.has, "not a date like " + strings.Join(formats, " or "), func(v []byte) string {
		if r.dateFormats.has(v) {
			return "the type time takes a time of day"
		}
		return ""
	}}, nil
}

// named returns all columns that the rules name, sorted. Naming one makes it required.
func (r *rules) named() []string {
	return slices.Compact(slices.Sorted(slices.Values(
		slices.Concat(r.in.Required, r.in.NotNull, r.in.Unique, r.in.Key, slices.Collect(maps.Keys(r.in.Types))))))
}

// isNull reports whether a value means "no value".
func (r *rules) isNull(v []byte) bool {
	return len(v) == 0 || len(r.nulls) > 0 && r.nulls[string(v)]
}

// missing refuses a file without the columns that the rules name.
func (r *rules) missing(names []string) error {
	lacking := r.lacking(names)
	if len(lacking) == 0 {
		return nil
	}
	texts := make([]string, len(lacking))
	for i, want := range lacking {
		var remarks []string
		if j := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, want) }); j >= 0 {
			remarks = append(remarks, fmt.Sprintf("there is %q", shown(names[j])))
		}
		if asking := r.asking(want); !slices.Contains(asking, "required") {
			remarks = append(remarks, "asked for by "+shown(strings.Join(asking, ", ")))
		}
		if texts[i] = strconv.Quote(shown(want)); len(remarks) > 0 {
			texts[i] += " (" + strings.Join(remarks, "; ") + ")"
		}
	}
	columns := "columns"
	if len(texts) == 1 {
		columns = "column"
	}
	return refuse("missing_column", "%s %s missing", columns, strings.Join(texts, ", "))
}

// lacking returns the columns that the rules name and names does not have.
func (r *rules) lacking(names []string) []string {
	return slices.DeleteFunc(r.named(), func(want string) bool { return slices.Contains(names, want) })
}

// asking returns the fields of the payload that name a column.
func (r *rules) asking(column string) (fields []string) {
	for _, f := range []struct {
		name    string
		columns []string
	}{{"required", r.in.Required}, {"not_null", r.in.NotNull}, {"unique", r.in.Unique}, {"key", r.in.Key}} {
		if slices.Contains(f.columns, column) {
			fields = append(fields, f.name)
		}
	}
	if _, typed := r.in.Types[column]; typed {
		fields = append(fields, "types."+column)
	}
	return fields
}

// checks returns the checks for a file with these columns, left to right.
func (r *rules) checks(names []string) []check {
	var all []check
	for i, name := range names {
		c := check{column: i, notNull: slices.Contains(r.in.NotNull, name) || slices.Contains(r.in.Key, name),
			rule: r.types[name]}
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
	reason := fmt.Sprintf("%s: %q", c.rule.want, shown(string(v)))
	if c.rule.hint != nil {
		if hint := c.rule.hint(v); hint != "" {
			reason += "; " + hint
		}
	}
	return reason
}
