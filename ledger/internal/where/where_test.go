package where

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestSuccessor(t *testing.T) {
	for prefix, want := range map[string]string{
		"a": "b", "az": "a{", "a\u007f": "a\u0080", "\uD7FF": "\uE000", "a\U0010FFFF": "b", "\U0010FFFF": "",
	} {
		if got := successor(prefix); got != want {
			t.Errorf("successor(%q) = %q, want %q", prefix, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s, prefix := rapid.String().Draw(t, "s"), rapid.StringN(1, 3, -1).Draw(t, "prefix")
		if rapid.Bool().Draw(t, "begins") {
			s = prefix + s
		}
		end := successor(prefix)
		if got := s >= prefix && (end == "" || s < end); got != strings.HasPrefix(s, prefix) {
			t.Fatalf("%q in [%q, %q): %v", s, prefix, end, got)
		}
	})
}
