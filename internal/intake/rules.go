package intake

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Rule includes or excludes files of folders. If there are includes among the rules, only files that the rules include
// are taken; else the files that the plugin takes. Of several rules that match a file the last one counts.
//
// A pattern with a slash is compared with the path below the named folder. A pattern without one is compared with the
// last name of the path, or of a folder on the way: --exclude node_modules leaves out all files in it. ** stands for
// any number of folders.
type Rule struct {
	Exclude bool
	Pattern string
}

// ParseRule returns the rule of a pattern, or an error if it is malformed.
func ParseRule(exclude bool, pattern string) (Rule, error) {
	if pattern == "" || !doublestar.ValidatePattern(pattern) {
		return Rule{}, fmt.Errorf("%q is not a pattern, such as '*.csv' or 'old/**'", pattern)
	}
	return Rule{exclude, strings.TrimSuffix(strings.TrimPrefix(pattern, "./"), "/")}, nil
}

// matches reports whether the pattern matches a path below the folder, or a folder on the way to it.
func (r Rule) matches(rel string) bool {
	for p := rel; p != "."; p = path.Dir(p) {
		name := p
		if !strings.Contains(r.Pattern, "/") {
			name = path.Base(p)
		}
		if doublestar.MatchUnvalidated(r.Pattern, name) {
			return true
		}
	}
	return false
}

// takes reports whether a file of a folder is taken, by its path below the folder.
func (s *Source) takes(rel string) bool {
	taken := false
	if !slices.ContainsFunc(s.Rules, func(r Rule) bool { return !r.Exclude }) {
		name := strings.ToLower(path.Base(rel)) // patterns of plugins are in lower case and match any case
		taken = len(s.Input.Match) == 0 || slices.ContainsFunc(s.Input.Match, func(pattern string) bool {
			return doublestar.MatchUnvalidated(pattern, name)
		})
	}
	for _, r := range s.Rules {
		if r.matches(rel) {
			taken = !r.Exclude
		}
	}
	return taken
}

// prunes reports whether no file below a folder can be taken.
func (s *Source) prunes(rel string) bool {
	for i := len(s.Rules) - 1; i >= 0 && s.Rules[i].Exclude; i-- {
		if s.Rules[i].matches(rel) {
			return true
		}
	}
	return false
}

// unfinished returns why a file is left out because of its name: it is hidden, or still being written.
func unfinished(name string) string {
	lower := strings.ToLower(name)
	switch {
	case strings.HasPrefix(name, "."):
		return Hidden
	case strings.HasPrefix(name, "~$"):
		return "lock file of an editor"
	}
	for _, suffix := range []string{".part", ".tmp", ".crdownload"} {
		if strings.HasSuffix(lower, suffix) {
			return "unfinished (" + suffix + ")"
		}
	}
	return ""
}
