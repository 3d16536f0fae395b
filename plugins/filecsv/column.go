package filecsv

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/big"
	"unicode/utf8"
)

// maxShown is how many bytes of a value or name are kept for the output.
const maxShown = 100

// column collects facts about the values of one column: the narrowest kind that fits all of them, and the least and
// the greatest value in the order of that kind.
type column struct {
	name   string
	nulls  int64
	kind   kind
	text   bounds // all values in byte order: the kind may become text at the last row
	values bounds // in the order of the kind

	low, high     float64 // of values, if numbers
	first, latest instant // of values, if dates
}

// bounds are the least and the greatest value, as written.
type bounds struct {
	min, max           []byte
	minStart, maxStart uint64
}

func (b *bounds) setMin(v []byte) { b.min, b.minStart = append(b.min[:0], v...), start(v) }
func (b *bounds) setMax(v []byte) { b.max, b.maxStart = append(b.max[:0], v...), start(v) }

// add takes a value that is not null, in byte order. Only the first bytes of a long value count.
func (b *bounds) add(v []byte) {
	s := start(v)
	if s > b.minStart && (s < b.maxStart || s == b.maxStart && len(v) <= 8) {
		return // most values: their first eight bytes decide
	}
	v = v[:min(len(v), maxShown+1)]
	if len(b.min) == 0 {
		b.setMin(v)
		b.setMax(v)
	}
	if s <= b.minStart && bytes.Compare(v, b.min) < 0 {
		b.setMin(v)
	}
	if s >= b.maxStart && bytes.Compare(v, b.max) > 0 {
		b.setMax(v)
	}
}

// start is the first eight bytes of v as a number with the same order.
func start(v []byte) (s uint64) {
	if cap(v) >= 8 {
		s = binary.BigEndian.Uint64(v[:8])
		if len(v) < 8 {
			s &^= math.MaxUint64 >> (8 * len(v)) // clears the bytes behind v
		}
		return s
	}
	for i, c := range v {
		s |= uint64(c) << (56 - 8*i)
	}
	return s
}

// add takes in a value that is not null.
func (c *column) add(v []byte, f notation) {
	c.text.add(v)
	if c.kind == kindEmpty {
		c.kind = f.kindOf(v)
	}
	switch c.kind {
	case kindInt, kindDecimal:
		n, k := f.number(v)
		c.kind = max(c.kind, k)
		if k != kindText {
			c.addNumber(v, n, f.point)
		}
	case kindDate:
		if t, ok := f.date(v); ok {
			c.addDate(v, t)
		} else {
			c.kind = kindText
		}
	case kindBool:
		if !truth(v, true) {
			c.kind = kindText
		}
	}
}

func (c *column) addNumber(v []byte, n float64, point func([]byte) []byte) {
	none := len(c.values.min) == 0
	if none || n < c.low || n == c.low && less(point(v), point(c.values.min)) {
		c.low = n
		c.values.setMin(v)
	}
	if none || n > c.high || n == c.high && less(point(c.values.max), point(v)) {
		c.high = n
		c.values.setMax(v)
	}
}

func (c *column) addDate(v []byte, at instant) {
	none := len(c.values.min) == 0
	if none || at < c.first {
		c.first = at
		c.values.setMin(v)
	}
	if none || at > c.latest {
		c.latest = at
		c.values.setMax(v)
	}
}

// less compares numbers that are equal as float64. Rounding can make two numbers equal but does not reverse their
// order. Numbers with an exponent stay equal: the exact value of 1e-300000 has a million bits.
func less(a, b []byte) bool {
	if bytes.Equal(a, b) || bytes.ContainsAny(a, "eE") || bytes.ContainsAny(b, "eE") {
		return false
	}
	x, _ := new(big.Rat).SetString(string(a))
	y, _ := new(big.Rat).SetString(string(b))
	return x.Cmp(y) < 0
}

// summary returns the column for the output.
func (c *column) summary() Column {
	out := Column{Name: shown(c.name), Type: c.kind.String(), Nulls: c.nulls}
	switch b := c.values; c.kind {
	case kindText:
		out.Min, out.Max = shown(string(c.text.min)), shown(string(c.text.max))
	case kindInt, kindDecimal, kindDate:
		out.Min, out.Max = string(b.min), string(b.max)
	}
	return out
}

// shown cuts s if it is long.
func shown(s string) string {
	if len(s) <= maxShown {
		return s
	}
	end := maxShown
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}
