// Package shell quotes words for a POSIX shell, in the commands that messages propose.
package shell

import (
	"strings"
	"unicode"
)

// Quote returns a word as a shell reads it: in single quotes, unless it needs none.
func Quote(word string) string {
	special := func(r rune) bool {
		return !strings.ContainsRune("/:@%+=,._-", r) && (r > 'z' || !unicode.IsLetter(r) && !unicode.IsDigit(r))
	}
	if word != "" && !strings.ContainsFunc(word, special) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
