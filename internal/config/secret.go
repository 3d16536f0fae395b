package config

import (
	"regexp"
	"strings"

	"github.com/ledgerd/ledgerd/internal/inputs"
)

var (
	secretName = regexp.MustCompile(`(?i)pass|pasw|pwd|secret|token|key|cred|auth`)
	withTable  = regexp.MustCompile(`(^|\.)with(\.|\[|$)|\.env\[`)
)

// looksSecret tells whether what has this name may be a secret, where no plugin says it.
func looksSecret(name string) bool { return secretName.MatchString(name) }

// lastKey is the last key of a path.
func lastKey(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// hideValues makes a line of the file fit for a message: what is in the config of a plugin may be a
// secret, also if its name is misspelt, and so may be what has such a name elsewhere.
func hideValues(path, line string) string {
	name, _, isKey := strings.Cut(line, "=")
	switch {
	case withTable.MatchString(path) && !isKey && !strings.HasPrefix(strings.TrimSpace(line), "["):
		return "…"
	case isKey && (withTable.MatchString(path) || looksSecret(name) && !knownKey(strings.TrimSpace(name))):
		return name + "= …"
	}
	return inputs.Redact(line)
}

// knownKey tells whether a name that looks secret is one of ours.
func knownKey(name string) bool {
	switch name {
	case "key", "max_running_per_shard_key", "rate_per_shard_key":
		return true
	}
	return false
}
