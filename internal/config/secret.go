package config

import (
	"strings"

	"github.com/ledgerd/ledgerd/internal/lazyregexp"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

var (
	// userOnly is the part of a URL that names a user without a password.
	userOnly = lazyregexp.New(`//[^/:@\s"']*@`)
	// cutOff is a password whose end with the @ is missing: the text after the colon is no port.
	cutOff = lazyregexp.New(`//[^/:@\s"'\[]*:[0-9]*[^/:@\s"'0-9]`)
)

// safeURL removes passwords from a text that may hold a URL. It hides the whole text if a password may be outside of a
// URL that can be parsed.
func safeURL(text string) string {
	shown := redact.Text(text)
	rest := userOnly().ReplaceAllString(strings.ReplaceAll(shown, ":***@", ""), "")
	if _, behind, colon := strings.Cut(rest, ":"); colon && strings.Contains(behind, "@") || cutOff().MatchString(rest) {
		return "…"
	}
	return shown
}

// lastKey returns the last key of a path.
func lastKey(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }
