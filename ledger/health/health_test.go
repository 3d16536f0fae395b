package health

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "",
		"no such program\nstderr:": "no such program",
		"a\x00b\xff":               "ab\uFFFD",
		strings.Repeat("ä", 149):   strings.Repeat("ä", 149),
		strings.Repeat("ä", 151):   strings.Repeat("ä", 148) + "…",
	} {
		if got := OneLine(text); got != want || len(got) > MaxError || !utf8.ValidString(got) {
			t.Errorf("%q: %q", text, got)
		}
	}
}
