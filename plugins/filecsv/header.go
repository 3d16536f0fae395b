package filecsv

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// header reports whether the first row names the columns.
type header struct {
	yes     bool
	because string // "": there is no sign, yes is only more likely
	weak    bool   // the sign is too weak to make a table by it
}

// header looks for signs that distinguish names from values. A row with a name of a column in the payload, in upper or
// lower case, is a header. Otherwise each column votes. Its first cell counts as a name if its kind differs from all
// values below it (text above numbers, a number above dates, no digit or @ above values that all have one). It counts
// as a value if it is of their kind, is written like them, or comes again below. The last is a weak sign. Years, and
// numbers that count up from column to column, are names. If the whole row comes again, the file may consist of several
// files with headers, so its cells do not count as repeated values.
func (r *rules) header(rows [][][]byte) header {
	if len(rows) == 0 || rows[0] == nil {
		return header{yes: true} // no row, or a malformed one: reading it reports the error
	}
	named, counted := slices.AppendSeq(r.named(), maps.Keys(r.in.Into)), countedUp(rows)
	votes, typed, because := 0, 0, map[bool]string{}
	whole, again := slices.ContainsFunc(rows[1:], func(row [][]byte) bool { return sameRow(row, rows[0]) }), 0
	for i, v := range rows[0] {
		v = trim(v)
		if slices.ContainsFunc(named, func(n string) bool { return strings.EqualFold(n, string(v)) }) {
			return header{yes: true, because: fmt.Sprintf("it has the column %q", shown(string(v)))}
		}
		if r.isNull(v) {
			continue
		}
		below := r.below(rows[1:], i)
		if r.kindOf(v) != kindText && !aloneYear(v, below) {
			typed++
		}
		vote, why := r.vote(v, below, slices.Contains(counted, i))
		if why == comesAgain {
			if whole {
				continue
			}
			again--
		}
		votes += vote
		if why != "" && because[vote > 0] == "" {
			because[vote > 0] = fmt.Sprintf("%q %s", shown(string(v)), why)
		}
	}
	if votes == 0 {
		if typed > 0 && typed == len(rows[0]) {
			return header{because: "it has numbers or dates only"}
		}
		return header{yes: typed == 0}
	}
	return header{yes: votes > 0, because: because[votes > 0], weak: votes < 0 && votes == again}
}

const comesAgain = "comes again below"

// sameRow reports whether two rows of at least two columns have the same values.
func sameRow(a, b [][]byte) bool {
	return len(a) > 1 && slices.EqualFunc(a, b, func(a, b []byte) bool { return bytes.Equal(trim(a), trim(b)) })
}

// below returns the values of column i that are not null.
func (r *rules) below(rows [][][]byte, i int) (values [][]byte) {
	for _, row := range rows {
		if i < len(row) {
			if v := trim(row[i]); !r.isNull(v) {
				values = append(values, v)
			}
		}
	}
	return values
}

// vote returns 1 if v is a name, -1 if it is a value like those below it, and 0 if it is neither for certain.
func (r *rules) vote(v []byte, below [][]byte, counted bool) (vote int, why string) {
	if counted {
		return 1, "is a year or a number counted up from column to column"
	}
	if len(below) == 0 {
		return 0, ""
	}
	k, kinds := r.family(v), map[kind]int{}
	for _, b := range below {
		kinds[r.family(b)]++
	}
	lower := r.family(below[0])
	switch {
	case len(kinds) > 1:
	case lower != kindText && k != lower:
		return 1, "stands above " + plural[lower]
	case lower != kindText && aloneYear(v, below):
		return 0, ""
	case lower != kindText:
		return -1, "stands above " + plural[lower] + " and is one of them"
	}
	if slices.ContainsFunc(below, func(b []byte) bool { return bytes.Equal(b, v) }) {
		return -1, comesAgain
	}
	if k != kindText || len(below) < 2 {
		return 0, ""
	}
	for _, m := range marksOfValues {
		switch all := !slices.ContainsFunc(below, func(b []byte) bool { return !m.has(b) }); {
		case all && !m.has(v):
			return 1, "has no " + m.what + ", unlike all values below it"
		case all && m.what == "@":
			return -1, "has an @ like all values below it"
		case all && m.what == "digit" && !slices.ContainsFunc(below, func(b []byte) bool { return shape(b) != shape(v) }):
			return -1, "is written like all values below it"
		}
	}
	return 0, ""
}

// marksOfValues are marks of values: if all values of a column have one and the first cell has not, that cell is a
// name.
var marksOfValues = []struct {
	what string
	has  func(v []byte) bool
}{
	{"@", func(v []byte) bool { return bytes.IndexByte(v, '@') > 0 }},
	{"digit", func(v []byte) bool { return bytes.IndexFunc(v, unicode.IsDigit) >= 0 }},
	{"capital at its beginning", func(v []byte) bool { c, _ := utf8.DecodeRune(v); return unicode.IsUpper(c) }},
	{"small letter at its beginning", func(v []byte) bool { c, _ := utf8.DecodeRune(v); return unicode.IsLower(c) }},
}

// shape returns the form of a value: each run of digits becomes 0, each run of letters a. So "20.11.2026" is "0.0.0".
func shape(v []byte) string {
	last := rune(0)
	return string(bytes.Map(func(c rune) rune {
		switch {
		case unicode.IsDigit(c):
			c = '0'
		case unicode.IsLetter(c):
			c = 'a'
		default:
			last = 0
			return c
		}
		if c == last {
			return -1
		}
		last = c
		return c
	}, v))
}

var plural = map[kind]string{kindDecimal: "numbers", kindDate: "dates", kindBool: "truth values"}

// family returns the kind of a value. Whole and decimal numbers are one family.
func (r *rules) family(v []byte) kind {
	if k := r.kindOf(v); k != kindInt {
		return k
	}
	return kindDecimal
}

// isYear reports whether n is a year of our time.
func isYear(n int) bool { return 1900 <= n && n <= 2100 }

// aloneYear reports whether v is a year above numbers that are no years. It may be a name or a value.
func aloneYear(v []byte, below [][]byte) bool {
	year := func(v []byte) bool {
		n, err := strconv.Atoi(string(v))
		return err == nil && isYear(n)
	}
	return len(below) > 0 && year(v) && !slices.ContainsFunc(below, year)
}

// countedUp returns the columns whose first cells form a series: at least three whole numbers that grow by the same
// step, or at least two years. There is no series if a row below is such a series, too.
func countedUp(rows [][][]byte) (columns []int) {
	var heading []int
	for i, v := range rows[0] {
		if n, err := strconv.Atoi(string(trim(v))); err == nil {
			columns, heading = append(columns, i), append(heading, n)
		}
	}
	if !even(heading) || len(heading) < 3 && !allYears(heading) {
		return nil
	}
	for _, row := range rows[1:] {
		var other []int
		for _, i := range columns {
			if i < len(row) {
				if n, err := strconv.Atoi(string(trim(row[i]))); err == nil {
					other = append(other, n)
				}
			}
		}
		if len(other) == len(heading) && even(other) && (allYears(other) || !allYears(heading)) {
			return nil
		}
	}
	return columns
}

func allYears(numbers []int) bool {
	return !slices.ContainsFunc(numbers, func(n int) bool { return !isYear(n) })
}

// even reports whether two or more numbers have the same distance from each to the next, and it is not 0.
func even(series []int) bool {
	if len(series) < 2 || series[1] == series[0] {
		return false
	}
	for i := 2; i < len(series); i++ {
		if series[i]-series[i-1] != series[1]-series[0] {
			return false
		}
	}
	return true
}

// columns names the columns of a header. Blank cells at its end come from delimiters after the last name and are no
// columns, unless the payload names one of them, such as column_5, or there is no name at all.
func (r *rules) columns(header [][]byte) (names, unnamed []string) {
	names = uniqueNames(header)
	end := len(names)
	for end > 0 && len(header[end-1]) == 0 && !r.names(names[end-1]) {
		end--
	}
	if end == 0 {
		return names, nil
	}
	return names[:end], names[end:]
}

// names reports whether the payload names a column of the file.
func (r *rules) names(column string) bool {
	_, mapped := r.in.Into[column]
	return mapped || slices.Contains(r.named(), column)
}

// uniqueNames makes names of a header: blank ones become column_3, repeated ones name_2.
func uniqueNames(header [][]byte) []string {
	names := make([]string, len(header))
	taken := map[string]bool{}
	for i, h := range header {
		names[i] = string(trim(h))
		if names[i] == "" {
			names[i] = "column_" + strconv.Itoa(i+1)
		}
		taken[names[i]] = true
	}
	seen := map[string]int{}
	for i, name := range names {
		seen[name]++
		for n := seen[name]; n > 1 && taken[names[i]]; n++ {
			names[i] = name + "_" + strconv.Itoa(n)
		}
		taken[names[i]] = true
	}
	return names
}
