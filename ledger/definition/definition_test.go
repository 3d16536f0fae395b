package definition_test

import (
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
