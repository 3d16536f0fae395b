package shell_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/internal/shell"
)

// Split returns the words that Quote wrote.
func TestSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOf(rapid.OneOf(rapid.String(), rapid.StringMatching(`['" \\a]*`))).Draw(t, "words")
		quoted := make([]string, len(want))
		for i, word := range want {
			quoted[i] = shell.Quote(word)
		}
		if got, ok := shell.Split(strings.Join(quoted, " ")); !ok || !slices.Equal(got, want) {
			t.Fatalf("%q is read as %q, %t", want, got, ok)
		}
	})
	if _, ok := shell.Split("--where 'kind:a"); ok {
		t.Error("a quote that is not closed is no text of words")
	}
}
