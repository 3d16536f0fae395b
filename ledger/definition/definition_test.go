package definition_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger/definition"
)

// A version may have a + of its own: what is behind the last one is the digest.
func TestSplit(t *testing.T) {
	for text, want := range map[string][3]string{
		"urlcheck@0.1.0+3fa9c1":        {"urlcheck", "0.1.0", "3fa9c1"},
		"thumbs@1.0.0+build.7+3fa9c1":  {"thumbs", "1.0.0+build.7", "3fa9c1"},
		"thumbs@2.0.0-rc.1+a@b+3fa9c1": {"thumbs", "2.0.0-rc.1+a@b", "3fa9c1"},
		"people":                       {"people", "", ""},
		"people@1":                     {"people", "1", ""},
		"":                             {},
	} {
		name, version, digest := definition.Split(text)
		if got := [3]string{name, version, digest}; got != want {
			t.Errorf("%q is %q, not %q", text, got, want)
		}
	}
}

// The text that String writes is read back, also lists and texts that have its separators in them. The end of a text
// that was cut is left over.
func TestReadDifferences(t *testing.T) {
	want := []definition.Difference{
		{Name: "command", Have: `["sh","-c","a, b: 1 → 2; c"]`, Want: `["true"]`},
		{Name: "dir", Have: `""`, Want: ""},
		{Name: "keep", Have: "720h0m0s", Want: "forever"},
		{Name: "max_failures", Have: "", Want: "3"},
		{Name: "types.a", Have: `{"x":[]}`, Want: "false"},
	}
	var texts []string
	for _, d := range want {
		texts = append(texts, d.String())
	}
	for _, between := range []string{", ", "; "} {
		text := strings.Join(texts, between)
		if got, rest := definition.ReadDifferences(text); !slices.Equal(got, want) || rest != "" {
			t.Errorf("%q is %q, and %q is left", text, got, rest)
		}
	}
	for text, left := range map[string]string{
		"":                                  "",
		"older than 1h":                     "older than 1h",
		"keep: 30d":                         "keep: 30d",
		`rate: not set → 5/s, match: not s`: "match: not s",
		`rate: not set → 5/s, match: [] → ["*.csv","*.t`: `match: [] → ["*.csv","*.t`,
	} {
		if _, rest := definition.ReadDifferences(text); rest != left {
			t.Errorf("of %q is left %q, not %q", text, rest, left)
		}
	}
}
