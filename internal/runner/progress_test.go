package runner

import "testing"

// Progress that a plugin reports is safe for a terminal.
func TestItemProgress(t *testing.T) {
	for want, p := range map[string]*ItemProgress{
		"":                     nil,
		"big.csv 42 %":         {Key: "/in/big.csv", Done: 42, Total: 100, Unit: "rows"},
		`a\x1bb 1,204 \x1b[2J`: {Key: "a\x1bb", Done: 1204, Unit: "\x1b[2J"},
	} {
		if got := p.String(); got != want {
			t.Errorf("%+v: %q, want %q", p, got, want)
		}
	}
}
