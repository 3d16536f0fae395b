// Package cause groups failures. Two failures have the same cause if they have the same code, and the first lines of
// their errors are equal without the parts that belong to one item: its key, numbers, long ids, and quoted texts.
package cause

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"

	"github.com/ledgerd/ledgerd/internal/lazyregexp"
)

// Length is the number of hexadecimal digits of a cause.
const Length = 12

// Of returns the cause of a failure of the item with this key: the first 6 bytes of the SHA-256 of the code, a NUL and
// Common(message, key), in hexadecimal digits.
func Of(code, message, key string) string {
	sum := sha256.Sum256([]byte(code + "\x00" + Common(message, key)))
	return hex.EncodeToString(sum[:Length/2])
}

var (
	id     = lazyregexp.New(`\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}\b|\b[0-9a-fA-F]{8,}\b`)
	quoted = lazyregexp.New(`"(?:[^"\\]|\\.)*"`)
	number = lazyregexp.New(`[0-9]+([.,:][0-9]+)*`)
)

// Common returns the first line of an error without the parts that belong to one item. It replaces numbers first, in
// the message and in the key. Otherwise it would find a key with a number in some errors and not in others.
func Common(message, key string) string {
	message, _, _ = strings.Cut(message, "\n")
	message, key = withoutNumbers(quoted().ReplaceAllString(message, `"N"`)), withoutNumbers(key)
	for _, name := range []string{key, filepath.Base(key)} {
		if len(name) > 2 { // a shorter name may be part of other words
			message = strings.ReplaceAll(message, name, "KEY")
		}
	}
	return message
}

func withoutNumbers(s string) string {
	return number().ReplaceAllString(id().ReplaceAllString(s, "N"), "N")
}
