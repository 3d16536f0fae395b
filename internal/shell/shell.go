// Package shell quotes words for a POSIX shell, in the commands that messages propose, and splits such commands.
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

// Split returns the words of a line that Quote and spaces made. ok is false if a quote is not closed.
func Split(line string) (words []string, ok bool) {
	var word strings.Builder
	quoted, begun := false, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\'':
			quoted, begun = !quoted, true
		case quoted:
			word.WriteByte(c)
		case c == ' ':
			if begun {
				words = append(words, word.String())
				word.Reset()
			}
			begun = false
		case c == '\\' && i+1 < len(line):
			i++
			word.WriteByte(line[i])
			begun = true
		default:
			word.WriteByte(c)
			begun = true
		}
	}
	if begun {
		words = append(words, word.String())
	}
	return words, !quoted
}
