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

// Proposed is the first setting that an error proposes, as --set takes it; "" if there is none. Its value is Choose if
// the error proposes other values of it as well.
func Proposed(message string) string {
	var name, value string
	for _, m := range setting.FindAllStringSubmatch(message, -1) {
		n, v, _ := strings.Cut(strings.TrimRight(m[1], ";)"), "=")
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

// Mend is a setting that errors propose, and of how many items.
type Mend struct {
	Set   string `json:"set"`
	Count int64  `json:"count"`
}

// maxMends is how many settings are counted.
const maxMends = 100

// propose counts the setting that an error proposes.
func (f *Failures) propose(message string) {
	set := Proposed(message)
	if set == "" {
		return
	}
	i := slices.IndexFunc(f.mends, func(m Mend) bool { return m.Set == set })
	if i < 0 && len(f.mends) == maxMends {
		return
	}
	if i < 0 {
		i, f.mends = len(f.mends), append(f.mends, Mend{Set: set})
	}
	f.mends[i].Count++
}

// Mends are the settings that errors propose, the most frequent first.
func (f *Failures) Mends() []Mend {
	list := slices.Clone(f.mends)
	slices.SortFunc(list, func(a, b Mend) int {
		return cmp.Or(-cmp.Compare(a.Count, b.Count), strings.Compare(a.Set, b.Set))
	})
	return OrEmpty(list)
}
