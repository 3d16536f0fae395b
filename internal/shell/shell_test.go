package shell_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/shell"
)

// TestQuote: a shell reads the words that were quoted.
func TestQuote(t *testing.T) {
	want := []string{"plain-1", "", "two words", "it's", `"`, `\`, `\'`, "$HOME", "*", "~", "#", "a\nb", "größer", "→", "`x`"}
	line := "printf '%s\\0'"
	for _, word := range want {
		line += " " + shell.Quote(word)
	}
	out, err := exec.Command("sh", "-c", line).Output()
	must.OK(t, err)
	if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); !slices.Equal(got, want) {
		t.Errorf("%s is read as %q", line, got)
	}
	if shell.Quote(want[0]) != want[0] {
		t.Errorf("%s needs no quotes", want[0])
	}
}
