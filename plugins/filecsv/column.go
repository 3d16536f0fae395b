package filecsv

import "github.com/ledgerd/ledgerd/plugins/filecsv/load"

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
func shown(s string) string { return load.Shown(s) }
