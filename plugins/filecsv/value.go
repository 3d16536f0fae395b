package filecsv

import (
	"bytes"
	"net/mail"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// kind is the kind of a value, or of all values of a column.
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
	if len(v) > 0 && (v[0] <= ' ' || v[len(v)-1] <= ' ') {
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
// since article and telephone numbers look like this. The value is rounded to the nearest float64.
func number(v []byte) (float64, kind) {
	digits := v
	if len(v) > 0 && v[0] == '-' {
		digits = v[1:]
	}
	whole, n := leadingDigits(digits)
	rest := digits[whole:]
	switch {
	case whole == 0 || len(v) > maxNumber || whole > 1 && digits[0] == '0':
		return 0, kindText
	case whole == len(v) && whole <= 18:
		return float64(n), kindInt
	case len(rest) > 1 && rest[0] == '.' && len(digits) == len(v):
		places, m := leadingDigits(rest[1:])
		if places == len(rest)-1 && whole+places <= 15 {
			return float64(n*int64(pow10[places])+m) / pow10[places], kindDecimal // both are exact: rounded once
		}
	case len(rest) > 0 && rest[0]|0x20 != 'e' && rest[0] != '.' || len(rest) == 1:
		return 0, kindText
	}
	f, err := strconv.ParseFloat(string(v), 64)
	switch {
	case err != nil:
		return 0, kindText
	case len(rest) == 0:
		return f, kindInt
	}
	return f, kindDecimal
}

var pow10 = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// leadingDigits counts the digits at the start of v. n is their value if there are at most 18.
func leadingDigits(v []byte) (count int, n int64) {
	for _, c := range v {
		if c -= '0'; c > 9 {
			break
		}
		n = n*10 + int64(c)
		count++
	}
	return count, n
}

// integer and decimal also accept +007, +.5, 5. and 1E+05, as people write them.
var (
	integer = regexp.MustCompile(`^[+-]?[0-9]+$`)
	decimal = regexp.MustCompile(`^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$`)
)

// commaInteger and commaDecimal accept numbers with a decimal comma, as people write them: 1.234,56 and 1234,5.
var (
	commaInteger = regexp.MustCompile(`^[+-]?([0-9]+|[0-9]{1,3}(\.[0-9]{3})+)$`)
	commaDecimal = regexp.MustCompile(`^[+-]?(([0-9]+|[0-9]{1,3}(\.[0-9]{3})+)(,[0-9]*)?|,[0-9]+)$`)
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
	if !commaDecimal.Match(v) {
		return v
	}
	return bytes.Replace(bytes.ReplaceAll(v, []byte("."), nil), []byte(","), []byte("."), 1)
}

// number is the function number for this notation. With a decimal comma, a point that does not separate thousands
// makes the value text.
func (n notation) number(v []byte) (float64, kind) {
	if n.comma && bytes.IndexByte(v, '.') >= 0 && !commaDecimal.Match(v) {
		return 0, kindText
	}
	return number(n.point(v))
}

// hint returns advice for a value that is a number with a decimal comma.
func (n notation) hint(v []byte) string {
	if n.comma || !commaDecimal.Match(v) {
		return ""
	}
	return "with a decimal comma: --set decimal=,"
}

// instant is a point in time as a number: a date and microseconds. Later times have greater numbers. The numbers have
// gaps, so that no length of a month is needed.
type instant int64

func newInstant(year, month, day, micros int64) instant {
	return instant(((year*16+month)*32+day)*86_400_000_000 + micros)
}

// date reads v by the first format that fits.
func (f dateFormats) date(v []byte) (instant, bool) {
	for _, layout := range f {
		if layout == time.DateOnly && len(v) == len(time.DateOnly) {
			if at, ok := isoDay(v); ok {
				return at, true
			}
		}
		if t, err := time.Parse(layout, string(v)); err == nil {
			t = t.UTC()
			y, m, d := t.Date()
			return newInstant(int64(y), int64(m), int64(d), t.Sub(time.Date(y, m, d, 0, 0, 0, 0, time.UTC)).Microseconds()), true
		}
	}
	return 0, false
}

// has reports whether a format fits v.
func (f dateFormats) has(v []byte) bool {
	_, ok := f.date(v)
	return ok
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

// isoDay is time.Parse for 2006-01-02, ten times as fast, for days up to the 28th. Most dates have this layout and such
// a day.
func isoDay(v []byte) (instant, bool) {
	a, year := leadingDigits(v[:4])
	b, month := leadingDigits(v[5:7])
	c, day := leadingDigits(v[8:])
	ok := v[4] == '-' && v[7] == '-' && a+b+c == 8 && month >= 1 && month <= 12 && day >= 1 && day <= 28
	return newInstant(year, month, day, 0), ok
}

// truth reports whether v means yes or no. plain excludes forms that are codes or numbers as often.
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
	if _, k := n.number(v); k != kindText {
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
