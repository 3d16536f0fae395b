package report

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// setting is an assignment that an error proposes, "--set encoding=windows-1252". A value that a person has to think
// of, as in --set encoding=… or --set skip=LINES, is none.
var setting = regexp.MustCompile(`--set ([a-z][a-z0-9_.]*=(?:'[^']*'|[^\s'"…:]+))`)

var placeholder = regexp.MustCompile(`^[A-Z][A-Z_]+$`)

// Choose is the value of a setting of which an error proposes several: a person decides.
const Choose = "…"

// Proposed are the settings that a text proposes, as --set takes them: the first one of each line, as a line tells one
// fault. The value of one is Choose if its line proposes other values of it as well.
func Proposed(text string) (sets []string) {
	for line := range strings.Lines(text) {
		set := proposedIn(line)
		name, _, found := strings.Cut(set, "=")
		if found && !slices.ContainsFunc(sets, func(s string) bool { return strings.HasPrefix(s, name+"=") }) {
			sets = append(sets, set)
		}
	}
	return sets
}

func proposedIn(message string) string {
	var name, value string
	for _, m := range setting.FindAllStringSubmatch(message, -1) {
		n, v, _ := strings.Cut(strings.TrimRight(m[1], ";)"), "=")
		if len(v) > 1 { // a comma alone is a value
			v = strings.TrimRight(v, ",")
		}
		if v = strings.Trim(v, "'"); v == "" || placeholder.MatchString(v) {
			continue
		}
		switch {
		case name == "":
			name, value = n, v
		case n == name && v != value:
			value = Choose
		}
	}
	if name == "" {
		return ""
	}
	return name + "=" + value
}

// Mend is a setting that errors and advice propose, and for how many items.
type Mend struct {
	Set   string `json:"set"`
	Count int64  `json:"count"`
}

// maxMends is how many settings are counted.
const maxMends = 100

// Propose counts the settings that the error or the advice of an item proposes, and reports whether it does.
func (f *Failures) Propose(text string) bool {
	sets := Proposed(text)
	for _, set := range sets {
		i := slices.IndexFunc(f.mends, func(m Mend) bool { return m.Set == set })
		if i < 0 && len(f.mends) == maxMends {
			continue
		}
		if i < 0 {
			i, f.mends = len(f.mends), append(f.mends, Mend{Set: set})
		}
		f.mends[i].Count++
	}
	if len(sets) > 0 {
		f.Mendable++
	}
	return len(sets) > 0
}

// Mends are the settings that errors and advice propose, the most frequent first.
func (f *Failures) Mends() []Mend {
	list := slices.Clone(f.mends)
	slices.SortFunc(list, func(a, b Mend) int {
		return cmp.Or(-cmp.Compare(a.Count, b.Count), strings.Compare(a.Set, b.Set))
	})
	return OrEmpty(list)
}
