package filecsv

import "unicode/utf8"

// maxShown is how many bytes of a value or name are kept for the output.
const maxShown = 100

// column collects facts about the values of one column: the narrowest kind that fits all of them.
type column struct {
	name  string
	nulls int64
	kind  kind
}

// add takes in a value that is not null.
func (c *column) add(v []byte, f notation) {
	fits := true
	switch c.kind {
	case kindEmpty:
		c.kind = f.kindOf(v)
	case kindInt, kindDecimal:
		c.kind = max(c.kind, f.number(v))
	case kindDate:
		fits = f.has(v)
	case kindBool:
		fits = truth(v, true)
	}
	if !fits {
		c.kind = kindText
	}
}

// summary returns the column for the output.
func (c *column) summary() Column {
	return Column{Name: shown(c.name), Type: c.kind.String(), Nulls: c.nulls}
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
