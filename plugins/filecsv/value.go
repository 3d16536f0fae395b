package filecsv

import (
	"bytes"
	"net/mail"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ledgerd/ledgerd/internal/lazyregexp"
)

// kind is the type of a value, or the type that fits all values of a column.
type kind uint8

const (
	kindEmpty kind = iota // no value yet
	kindInt
	kindDecimal
	kindBool
	kindDate
	kindText
)

func (k kind) String() string {
	return [...]string{"empty", "int", "decimal", "bool", "date", "text"}[k]
}

// maxNumber is the longest value, in bytes, that counts as a number.
const maxNumber = 100

// dateFormats are layouts of package time.
type dateFormats []string

// newDateFormats translates "DD.MM.YYYY hh:mm" and similar forms into layouts.
func newDateFormats(formats []string) (layouts dateFormats, err error) {
	layout := strings.NewReplacer("YYYY", "2006", "YY", "06", "MM", "01", "M", "1", "DD", "02", "D", "2",
		"hh", "15", "mm", "04", "ss", "05", "Z", "Z07:00")
	for _, f := range formats {
		if !strings.Contains(f, "YY") || !strings.Contains(f, "M") || !strings.Contains(f, "D") {
			return nil, refuse("bad_check",
				"date_formats: %q has no year, month or day (YYYY or YY, MM or M, DD or D; hh mm ss Z)", f)
		}
		layouts = append(layouts, layout.Replace(f))
	}
	return layouts, nil
}

// trim removes the white space around a value, since it never counts.
func trim(v []byte) []byte {
	space := func(b byte) bool { return b <= ' ' || b >= utf8.RuneSelf } // it may be
	if len(v) > 0 && (space(v[0]) || space(v[len(v)-1])) {
		return bytes.TrimSpace(v)
	}
	return v
}

// trimAll trims all values of a row.
func trimAll(row [][]byte) [][]byte {
	trimmed := make([][]byte, len(row))
	for i, v := range row {
		trimmed[i] = trim(v)
	}
	return trimmed
}

// number recognises numbers as programs write them: -12, 0.5, 1e-05. A value with leading zeros or a plus is text,
// since article and telephone numbers look like this.
func number(v []byte) kind {
	digits := bytes.TrimPrefix(v, []byte("-"))
	whole := leadingDigits(digits)
	rest := digits[whole:]
	switch {
	case whole == 0 || len(v) > maxNumber || whole > 1 && digits[0] == '0':
		return kindText
	case len(rest) == 0:
		return kindInt
	case len(rest) == 1 || rest[0]|0x20 != 'e' && rest[0] != '.':
		return kindText
	case rest[0] == '.' && leadingDigits(rest[1:]) == len(rest)-1:
		return kindDecimal
	}
	if _, err := strconv.ParseFloat(string(v), 64); err != nil || bytes.IndexByte(v, '_') >= 0 {
		return kindText
	}
	return kindDecimal
}

// leadingDigits counts the digits at the start of v.
func leadingDigits(v []byte) (count int) {
	for _, c := range v {
		if c < '0' || c > '9' {
			break
		}
		count++
	}
	return count
}

// integer and decimal also accept +007, +.5, 5. and 1E+05, as people write them.
var (
	integer = lazyregexp.New(`^[+-]?[0-9]+$`)
	decimal = lazyregexp.New(`^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$`)
)

// commaInteger and commaDecimal accept numbers with a decimal comma, as people write them: 1.234,56 and 1234,5.
var (
	commaInteger = lazyregexp.New(`^[+-]?([0-9]+|[0-9]{1,3}(\.[0-9]{3})+)$`)
	commaDecimal = lazyregexp.New(`^[+-]?(([0-9]+|[0-9]{1,3}(\.[0-9]{3})+)(,[0-9]*)?|,[0-9]+)$`)
)

// notation is the form of dates and numbers.
type notation struct {
	dateFormats
	comma bool // the decimal mark is a comma
}

// point writes a number with a decimal point. Other values stay as they are.
func (n notation) point(v []byte) []byte {
	if !n.comma {
		return v
	}
	if !commaDecimal().Match(v) {
		return v
	}
	return bytes.Replace(bytes.ReplaceAll(v, []byte("."), nil), []byte(","), []byte("."), 1)
}

// number is the function number for this notation. With a decimal comma, a point that does not separate thousands
// makes the value text.
func (n notation) number(v []byte) kind {
	if n.comma && bytes.IndexByte(v, '.') >= 0 && !commaDecimal().Match(v) {
		return kindText
	}
	return number(n.point(v))
}

// hint returns advice for a value that is a number with a decimal comma.
func (n notation) hint(v []byte) string {
	if n.comma || !commaDecimal().Match(v) {
		return ""
	}
	return "with a decimal comma: --set decimal=,"
}

// has reports whether a format fits v.
func (f dateFormats) has(v []byte) bool {
	for _, layout := range f {
		if _, err := time.Parse(layout, string(v)); err == nil {
			return true
		}
	}
	return false
}

// withoutTime returns the formats without a time of day.
func (f dateFormats) withoutTime() (days dateFormats) {
	for _, layout := range f {
		if !strings.Contains(layout, "15") {
			days = append(days, layout)
		}
	}
	return days
}

// truth reports whether v means yes or no. With plain, t, 1, on and the like do not: they are often codes or numbers.
func truth(v []byte, plain bool) bool {
	if len(v) > 5 {
		return false
	}
	switch strings.ToLower(string(v)) {
	case "true", "false", "yes", "no":
		return true
	case "t", "f", "y", "n", "1", "0", "on", "off":
		return !plain
	}
	return false
}

// email reports whether v is a bare address whose domain has a dot.
func email(v []byte) bool {
	s := string(v)
	a, err := mail.ParseAddress(s)
	if err != nil || a.Address != s {
		return false
	}
	domain := s[strings.LastIndexByte(s, '@')+1:]
	return strings.IndexByte(domain, '.') > 0 && !strings.HasPrefix(domain, "[")
}

// kindOf returns the kind of a single value.
func (n notation) kindOf(v []byte) kind {
	if k := n.number(v); k != kindText {
		return k
	}
	if truth(v, true) {
		return kindBool
	}
	if n.has(v) {
		return kindDate
	}
	return kindText
}
