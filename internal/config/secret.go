package config

import (
	"regexp"
	"strings"

	"github.com/ledgerd/ledgerd/sdk/redact"
)

var (
	// hiddenPath are keys whose values may be secrets, whatever they are called.
	hiddenPath = regexp.MustCompile(`(^|\.)with(\.|\[|$)|\.env\[`)
	// hiddenLine is a line that holds such keys, a name of a secret, or a URL whose query may be one.
	hiddenLine = regexp.MustCompile(`(?i)\bwith\b|\burl\b|https?:|command|pass|pasw|pwd|secret|token|key|cred|auth`)
	// ownKeys are keys of ours that only look like secrets.
	ownKeys = regexp.MustCompile(`\b(key|(max_running|rate)_per_shard_key)\b`)
)

var (
	// userOnly is the part of a URL that names a user without a password.
	userOnly = regexp.MustCompile(`//[^/:@\s"']*@`)
	// cutOff is a password whose end with the @ is missing: what follows the colon is no port.
	cutOff = regexp.MustCompile(`//[^/:@\s"'\[]*:[0-9]*[^/:@\s"'0-9]`)
)

// safeURL is a text that may hold a URL, without passwords; nothing of it if what may be a password is
// in no URL that can be read.
func safeURL(text string) string {
	shown := redact.Text(text)
	rest := userOnly.ReplaceAllString(strings.ReplaceAll(shown, ":***@", ""), "")
	if _, behind, colon := strings.Cut(rest, ":"); colon && strings.Contains(behind, "@") || cutOff.MatchString(rest) {
		return "…"
	}
	return shown
}

// lastKey is the last key of a path.
func lastKey(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// hideValues makes a line of the file fit for a message. What is in the config of a plugin may be a
// secret, also if its name is misspelt, and so may be what has such a name elsewhere; where the line is
// no TOML, it may be anywhere in it.
func hideValues(path, line string) string {
	if strings.HasPrefix(strings.TrimSpace(line), "[") && !strings.Contains(line, "=") { // a table
		return safeURL(line)
	}
	name, _, isKey := strings.Cut(line, "=")
	if !hiddenPath.MatchString(path) && !hiddenLine.MatchString(ownKeys.ReplaceAllString(line, "")) {
		if shown := safeURL(line); shown != "…" || !isKey {
			return shown
		}
	}
	if isKey && !strings.ContainsAny(name, `"'`) {
		return name + "= …"
	}
	return "…"
}
