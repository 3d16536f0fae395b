// Package shell writes words the way a POSIX shell reads them, for the commands that messages propose, and reads them
// back.
package shell

import (
	"strings"
	"unicode"
)

// Quote is a word as a shell takes it: in single quotes, unless it needs none.
func Quote(word string) string {
	special := func(r rune) bool {
		return !strings.ContainsRune("/:@%+=,._-", r) && (r > 'z' || !unicode.IsLetter(r) && !unicode.IsDigit(r))
	}
	if word != "" && !strings.ContainsFunc(word, special) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Split is the words that were written with Quote, with spaces between them; ok means that it is such a text.
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
